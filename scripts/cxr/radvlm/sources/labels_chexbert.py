"""The labels of CheXbert."""

from collections.abc import Mapping

from cxr.radvlm.chexbert import Labeller, labeller

INPUTS = {"weights": "results/weights/chexbert.safetensors"}


def load(weights: str, own: Mapping) -> Labeller:
    """Return the labeller. ``own``: the section ``radvlm.chexbert``. Raises UserError like :func:`labeller`."""
    return labeller(weights, own["model"], own["revision"])
