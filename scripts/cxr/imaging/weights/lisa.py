"""A checkpoint of LISA's kind (LISA, ROSALIA) as it was published: a configuration, a tokenizer, weights in parts."""

import shutil
from pathlib import Path

from cxr.imaging.weights import state_dict

PARTS = ("model", "lm_head")


def made_name(name: str) -> str:
    """Return the name of what is made of a published file."""
    return name.removeprefix("pytorch_").replace(".bin", ".safetensors")


def convert_lisa(source: Path, target: Path) -> dict:
    """Write one file to ``target``: a part of the weights as safetensors (returns what it holds), others as they are.

    Raises UserError for a part that is damaged or holds none of the model's tensors.
    """
    if source.suffix in (".bin", ".safetensors"):
        return state_dict.convert(source, target, PARTS)
    shutil.copyfile(source, target)
    return {}
