"""Converting CheXbert: its state dict, without the number of each position that some copies hold."""

from pathlib import Path

from cxr.imaging.weights import state_dict
from cxr.nets import tensors

PARTS = ("bert", "linear_heads")
POSITIONS = "bert.embeddings.position_ids"


def convert_chexbert(source: Path, target: Path) -> dict:
    """Write the net of ``source`` as the safetensors file ``target``; return its size. Raises UserError."""
    with state_dict.opened(source, PARTS) as state:
        kinds = {name: kind for name, kind in state.kinds.items() if name != POSITIONS}
        tensors.stream_tensors(target, kinds, state.get)
        return tensors.count_values(kinds) | ({"left_out": state.left_out} if state.left_out else {})
