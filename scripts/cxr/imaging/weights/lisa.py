"""Converting a published checkpoint in LISA's layout (LISA, ROSALIA): configuration, tokenizer, weights in parts."""

import shutil
from pathlib import Path

from cxr.imaging.weights import state_dict

PARTS = ("model", "lm_head")


def made_name(name: str) -> str:
    """Return the name of the file that is made from a published one."""
    return name.removeprefix("pytorch_").replace(".bin", ".safetensors")


def convert_lisa(source: Path, target: Path) -> dict:
    """Write one file to ``target``: a part of the weights as safetensors (returns its contents), others unchanged.

    Raises UserError for a part that is damaged or holds no tensor of the model.
    """
    if source.suffix in (".bin", ".safetensors"):
        return state_dict.convert(source, target, PARTS)
    shutil.copyfile(source, target)
    return {}
