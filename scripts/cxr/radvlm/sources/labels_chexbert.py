"""The labels of CheXbert."""

from collections.abc import Mapping

from cxr.radvlm.chexbert import Labeller, labeller

INPUTS = {"weights": "results/weights/chexbert.safetensors"}


def load(weights: str, settings: Mapping) -> Labeller:
    """Return the labeller. ``settings``: the section ``radvlm.chexbert``. Raises UserError like :func:`labeller`."""
    return labeller(weights, settings["model"], settings["revision"])
