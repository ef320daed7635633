"""Converting the DenseNet-121 of torchxrayvision: a pickled net, or its state dict."""

from pathlib import Path

from cxr.imaging.weights import state_dict

PARTS = ("features", "classifier")


def convert_xrv(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its size. Raises UserError."""
    return state_dict.convert(source, target, PARTS)
