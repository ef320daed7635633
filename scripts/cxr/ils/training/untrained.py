"""Prepare a published model that is asked and scored without training."""

from cxr.base.atomic import atomic_folder
from cxr.ils.training.rosalia import convert_checkpoint

INPUTS = {"lisa": "results/weights/rosalia", "clip": "results/weights/clip"}
"""Inputs; the rule replaces ``lisa`` by the folder of the run's own weights."""


def run_untrained(*, model: str, lisa: str, clip: str) -> None:
    """Convert the published checkpoint ``lisa`` (LISA's or ROSALIA's folder), with ``clip``, to the folder ``model``.

    The weights are bfloat16, as published. Raises UserError if they are missing, damaged or of another model.
    """
    with atomic_folder(model) as making:
        convert_checkpoint(making, lisa, clip)
