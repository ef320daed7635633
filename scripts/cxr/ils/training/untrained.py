"""Convert a published model to our layout, to be asked and scored without a training."""

from cxr.base.atomic import whole
from cxr.ils.training.rosalia import convert_checkpoint

INPUTS = {"lisa": "results/weights/rosalia", "clip": "results/weights/clip"}
"""Its inputs; ``lisa`` is the folder of the run's own weights."""


def run_untrained(*, model: str, lisa: str, clip: str) -> None:
    """Convert the published checkpoint ``lisa`` (LISA's or ROSALIA's folder), with ``clip``, to the folder ``model``.

    Its numbers are bfloat16, as published. Raises UserError for weights that are missing, damaged or of another model.
    """
    with whole(model) as making:
        convert_checkpoint(making, lisa, clip)
