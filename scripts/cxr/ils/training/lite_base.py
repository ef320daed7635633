"""Prepare the base of the engine lite, which is asked and scored without training."""

from cxr.base.atomic import atomic_folder
from cxr.ils.rosalia.lite import load_base


def run_base(*, model: str) -> None:
    """Write the base of the engine lite, in float32, and its tokenizer into the folder ``model``."""
    base_model, tokens = load_base()
    with atomic_folder(model) as making:
        base_model.save_pretrained(making)
        tokens.save(making)
