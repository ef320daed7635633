"""HybridGNet as CheXmask published it: a plain state dict."""

from pathlib import Path

from ils.weights import state_dict


def convert_hybridgnet(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return how much it holds. Raises UserError."""
    return state_dict.convert(source, target)
