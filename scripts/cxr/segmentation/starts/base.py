"""The trained segmenter of RadVLM's small base model (resources/vlm/onevision_tiny; train_masks.py trained it)."""

import json

from transformers import SamConfig

from cxr.base.paths import RESOURCES
from cxr.nets.weight_files import WeightFiles, fill_module
from cxr.segmentation.segmenter import Segmenter, make_empty_segmenter

RESOURCE_FILES = ("vlm/onevision_tiny/masks.safetensors", "rosalia/config.json")


def load(hidden: int, file: str, seed: int) -> Segmenter:
    """Return the segmenter; ``file``, ``seed`` are ignored. Raises UserError if its hidden size is not ``hidden``."""
    del file, seed
    config = SamConfig(**json.loads((RESOURCES / RESOURCE_FILES[1]).read_text(encoding="utf-8"))["sam"])
    segmenter = make_empty_segmenter(config, hidden)
    with WeightFiles(RESOURCES / RESOURCE_FILES[0]) as weights:
        fill_module(segmenter, weights.select_prefix("segmenter."), str(RESOURCES / RESOURCE_FILES[0]))
    return segmenter
