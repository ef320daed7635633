"""The small SAM of ROSALIA lite's base model (resources/rosalia), for a CPU."""

import json

from transformers import SamConfig

from cxr.base.paths import RESOURCES
from cxr.nets.weight_files import WeightFiles, fill_module
from cxr.segmentation.segmenter import Segmenter, make_new_segmenter

RESOURCE_FILES = ("rosalia/model.safetensors", "rosalia/config.json")
FOLDER = RESOURCES / "rosalia"


def load(hidden: int, file: str, seed: int) -> Segmenter:
    """Return a segmenter for hidden states (hidden,) with a random projection by ``seed``; ``file`` is ignored."""
    del file
    config = SamConfig(**json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))["sam"])
    segmenter = make_new_segmenter(config, hidden, seed)
    with WeightFiles(FOLDER / "model.safetensors") as weights:
        fill_module(segmenter.sam, weights.select_prefix("sam."), str(FOLDER))
    return segmenter
