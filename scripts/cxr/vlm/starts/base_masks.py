"""The base of RadVLM's small model that has learnt masks too (its train_masks.py): for a run with a head."""

from pathlib import Path

from cxr.vlm.models import load_model, with_seg, write_model
from cxr.vlm.starts import base

FAMILY = "onevision"
RESOURCE_FILES = ("vlm/onevision_tiny/masks.safetensors", "vlm/onevision_tiny/masks_words.json")


def load(folder: Path) -> None:
    """Give a small random model in a folder the token [SEG], and the weights of this base.

    Raises UserError for a model of other sizes.
    """
    loaded = with_seg(load_model(FAMILY, folder), 0)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    write_model(loaded, FAMILY, folder, "library")
    base.give(folder, *RESOURCE_FILES)
