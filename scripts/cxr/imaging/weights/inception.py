"""Converting the Inception-v3 of FID: its state dict, without the classifier that FID does not use."""

from pathlib import Path

from cxr.imaging.weights import state_dict
from cxr.nets import tensors

LAYERS = ("1a_3x3", "2a_3x3", "2b_3x3", "3b_1x1", "4a_3x3")
BLOCKS = ("5b", "5c", "5d", "6a", "6b", "6c", "6d", "6e", "7a", "7b", "7c")
PARTS = (*(f"Conv2d_{name}" for name in LAYERS), *(f"Mixed_{name}" for name in BLOCKS))
COUNTER = ".num_batches_tracked"
"""A number of the training, which some copies of the file hold."""


def convert_inception(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its size. Raises UserError."""
    with state_dict.opened(source, PARTS) as state:
        kinds = {name: kind for name, kind in state.kinds.items() if not name.endswith(COUNTER)}
        tensors.stream_tensors(target, kinds, state.get)
        return tensors.count_values(kinds) | ({"left_out": state.left_out} if state.left_out else {})
