"""Tools of `benchmarks/rosalia.py`: a model of LISA-7B's size with random weights, and a meter of time and memory."""

import copy
import sys
import time
from pathlib import Path

import torch
from torch import nn
from transformers import LlamaConfig, LlavaConfig, SamConfig

from cxr.ils.rosalia.config import CLIP_L14
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.tokens import Tokens
from cxr.segmentation.published import make_sam_config

VOCABULARY = 32_004
"""Number of token embeddings of LISA-7B, including its additional tokens."""


def configs_7b(tokens: Tokens, layers: int | None) -> tuple[LlavaConfig, SamConfig]:
    """Return LISA-7B's configurations; ``layers``: number of layers in each of its three nets, None for its own."""
    vision = copy.deepcopy(CLIP_L14)
    vision.num_hidden_layers = layers or vision.num_hidden_layers
    text = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=4096, intermediate_size=11008, num_hidden_layers=layers or 32,
        num_attention_heads=32, max_position_embeddings=2048, pad_token_id=tokens.pad,
        bos_token_id=tokens.bos, eos_token_id=tokens.eos,
    )  # fmt: skip
    llava = LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=tokens.image, image_seq_length=256,
        projector_hidden_act="linear", vision_feature_layer=-1 if layers else -2,
    )  # fmt: skip
    whole = tuple(n for n in (7, 15, 23, 31) if n < layers) or (layers - 1,) if layers else (7, 15, 23, 31)
    return llava, make_sam_config(1024, 16, 1280, layers or 32, 16, 14, whole)


def random_7b(tokens: Tokens, layers: int | None, device: torch.device, dtype: torch.dtype) -> Rosalia:
    """Return a model of LISA-7B's size with random weights, initialised on the device."""
    torch.manual_seed(0)
    torch.set_default_dtype(dtype)
    try:
        with device:
            model = Rosalia.from_configs(*configs_7b(tokens, layers), tokens.seg)
            for module in model.sam.modules():  # transformers begins it next to zero, where every mask is one constant
                if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
                    module.reset_parameters()
    finally:
        torch.set_default_dtype(torch.float32)
    return model


class Meter:
    """Context that measures a block: minimum seconds and maximum memory (GB) over all its runs."""

    def __init__(self, device: torch.device):
        self.cuda = device.type == "cuda"
        self.seconds, self.peak = float("inf"), 0.0

    def __enter__(self) -> "Meter":
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        elif sys.platform == "linux":
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._began = self._now()
        return self

    def __exit__(self, *_: object) -> None:
        if self.cuda:
            torch.cuda.synchronize()
        self.seconds = min(self.seconds, self._now() - self._began)
        self.peak = max(self.peak, self._peak())

    def _now(self) -> float:
        return time.perf_counter() if self.cuda else time.process_time()

    def _peak(self) -> float:
        if self.cuda:
            return torch.cuda.max_memory_allocated() / 1e9
        if sys.platform != "linux":
            return float("nan")
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024 / 1e9
