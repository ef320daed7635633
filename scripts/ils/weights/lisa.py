"""LISA-7B-v1 as it was published: a configuration, a tokenizer, and a state dict in shards."""

import shutil
from pathlib import Path

from ils.weights import state_dict


def convert_lisa(source: Path, target: Path) -> dict:
    """Write one file of LISA to ``target``: a shard as safetensors (what it holds is returned), others as they are."""
    if source.suffix == ".bin":
        return state_dict.convert(source, target)
    shutil.copyfile(source, target)
    return {}
