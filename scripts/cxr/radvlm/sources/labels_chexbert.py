"""The engine chexbert: labels of CheXbert."""

from collections.abc import Mapping

from cxr.radvlm.chexbert import Labeller, load_labeller

INPUTS = {"weights": "results/weights/chexbert.safetensors"}


def load(weights: str, settings: Mapping) -> Labeller:
    """Load the labeller. ``settings``: the section ``radvlm.chexbert``. Raises UserError for wrong weights."""
    return load_labeller(weights, settings["model"], settings["revision"])
