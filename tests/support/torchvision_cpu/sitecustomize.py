"""Let the published torchvision be imported beside torch for the CPU: it wants operators of its CUDA build to be there.

On the PYTHONPATH of the tests of `make vllm` alone, for vLLM's classes of vision-language models import torchvision.
"""

import importlib.util

if importlib.util.find_spec("torch") and importlib.util.find_spec("torchvision"):
    import torch

    for name in ("nms", "qnms"):
        try:
            getattr(torch.ops.torchvision, name)
        except (AttributeError, RuntimeError):
            torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
