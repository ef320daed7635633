"""Converting SAM, either the published state dict or a training checkpoint."""

from pathlib import Path

from cxr.imaging.weights import state_dict

PARTS = ("image_encoder", "prompt_encoder", "mask_decoder")


def convert_sam(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its size. Raises UserError."""
    return state_dict.convert(source, target, PARTS)
