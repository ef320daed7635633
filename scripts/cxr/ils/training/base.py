"""The base of ROSALIA lite as it is, in the layout of a trained model: to be asked and scored without a training."""

from cxr.base.atomic import whole
from cxr.ils.rosalia.base import load_base


def run_base(*, model: str) -> None:
    """Write the base and its tokenizer into the folder ``model``; its numbers are float32 there."""
    base_model, tokens = load_base()
    with whole(model) as making:
        base_model.save_pretrained(making)
        tokens.save(making)
