"""The base of RadVLM's small model that has also learned masks (its train_masks.py), for a run with a head."""

from pathlib import Path

from cxr.vlm.models import add_seg_token, load_model, write_model
from cxr.vlm.starts import base

FAMILY = "onevision"
RESOURCE_FILES = ("vlm/onevision_tiny/masks.safetensors", "vlm/onevision_tiny/masks_words.json")


def load(folder: Path) -> None:
    """Add the token [SEG] to a small random model and copy this base's weights. Raises UserError for other sizes."""
    loaded = add_seg_token(load_model(FAMILY, folder), 0)
    for path in folder.glob("*.safetensors"):
        path.unlink()
    write_model(loaded, FAMILY, folder, "library")
    base.copy_base_weights(folder, *RESOURCE_FILES)
