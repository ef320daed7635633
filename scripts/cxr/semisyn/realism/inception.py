"""Feature engine ``inception`` (FID, KID): the 2,048 pooled features of Inception-v3 (2015) on grey images as RGB."""

from collections.abc import Sequence

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.nets.devices import inference, select_device
from cxr.nets.inception import Inception
from cxr.nets.tensors import load_strict
from cxr.semisyn.realism.engine import FeatureEngine, Features, digest_of

METRICS = {"frechet": "fid", "kernel": "kid"}
INPUTS = {"weights": "results/weights/inception.safetensors"}
GPU = True


def load(setup: Setup) -> FeatureEngine:
    """Load the net. Raise UserError if its weights are missing or belong to another net."""
    with torch.device("meta"):
        net = Inception()
    load_strict(net, setup.files["weights"])
    device = select_device(setup.device, setup.requested_gpus)
    net = net.eval().to(device)

    @inference()
    def compute(images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        grey = torch.from_numpy(np.stack(images)).to(device, torch.float32)
        return Features(net(grey[:, None].expand(-1, 3, -1, -1)).cpu().numpy())

    # one image at a time on a CPU, so that no sum depends on other images
    return FeatureEngine(compute, digest_of(setup.files["weights"]), setup.batch if device.type != "cpu" else 1)
