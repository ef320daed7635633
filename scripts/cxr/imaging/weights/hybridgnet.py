"""Converting HybridGNet, either CheXmask's published state dict or a training checkpoint."""

from pathlib import Path

from cxr.imaging.weights import state_dict

PARTS = ("encoder", "dec_lin", *(f"graphConv_up{level}" for level in range(1, 7)), "SC_1", "SC_2")


def convert_hybridgnet(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its size. Raises UserError."""
    return state_dict.convert(source, target, PARTS)
