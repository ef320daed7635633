"""Prepare models that are asked and scored without training: a published one, or the base of the engine lite."""

from cxr.base.atomic import atomic_folder
from cxr.ils.rosalia.lite import load_base
from cxr.ils.training.rosalia import convert_checkpoint

INPUTS = {"lisa": "results/weights/rosalia", "clip": "results/weights/clip"}
"""Inputs; the rule replaces ``lisa`` by the folder of the run's own weights."""


def run_untrained(*, model: str, lisa: str, clip: str) -> None:
    """Convert the published checkpoint ``lisa`` (LISA's or ROSALIA's folder), with ``clip``, to the folder ``model``.

    The weights are bfloat16, as published. Raises UserError if they are missing, damaged or of another model.
    """
    with atomic_folder(model) as making:
        convert_checkpoint(making, lisa, clip)


def run_base(*, model: str) -> None:
    """Write the base of the engine lite, in float32, and its tokenizer into the folder ``model``."""
    base_model, tokens = load_base()
    with atomic_folder(model) as making:
        base_model.save_pretrained(making)
        tokens.save(making)
