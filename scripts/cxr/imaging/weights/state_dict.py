"""Converting published state dicts to safetensors, without running any code in them.

A checkpoint may hold more than its net: an optimiser, an epoch, the arguments of the training. These are dropped.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.imaging.weights import pickles
from cxr.imaging.weights.pickles import Stub
from cxr.nets import tensors

WRAPPERS = ("model_state_dict", "state_dict", "model", "module", "network", "net", "weights", "params", "ema")
"""Keys under which training code stores the state dict or the net; the first existing one is used."""
PREFIXES = ("module", "model", "network", "net", "_orig_mod")  # that training code adds to the names of a net's tensors
UNREAD = "torch._utils._rebuild"  # prefixes of unsupported kinds of tensors: sparse, quantized, without numbers
State = dict[str, torch.Tensor]


def read_state(source: Path, parts: tuple[str, ...] = ()) -> tuple[State, list[str]]:
    """Return {name: tensor} of a checkpoint of torch or a safetensors file, and the names that are not of the net.

    The tensors of a safetensors file or an archive of torch stay in the file until they are used. ``parts``: the first
    words of the names of the net's tensors. Prefixes of training code before them are removed, and other tensors are
    dropped. Without ``parts``, or if no name matches, only ``module.`` is removed.

    Raises UserError with one sentence for a file that is damaged, is malicious, or holds no state dict.
    """
    with open(source, "rb") as file:
        head = file.read(9)
    # a safetensors file begins with the length of its header, and the header is JSON
    if source.suffix == ".safetensors" or (head[8:9] == b"{" and head[:1] != b"\x80"):
        try:
            state = load_file(source)
        except (SafetensorError, OSError) as error:
            refuse_machine_fault(source, error)
            pickles.refuse(source, f"it is no whole safetensors file ({error})")
    else:
        state = _find_state(source, pickles.read_checkpoint(source))
        if not state:
            raise UserError(f"{source} holds no state dict: it is not the file that docs/how-to/models.md names")
    if odd := next((name for name, value in state.items() if value.dtype not in tensors.DTYPE_CODES), None):
        pickles.refuse(source, f"its tensor {odd} is not of plain numbers")
    return _match_names(source, state, parts)


def _find_state(source: Path, content: object) -> State:
    """Return the tensors of a state dict or a net, wherever the checkpoint stores it; empty if there is none."""
    if isinstance(content, Stub):
        return pickles.read_state(source, pickles.unwrap_network(content)) if content.children else {}
    if not isinstance(content, dict):
        return {}
    for key in WRAPPERS:
        if isinstance(content.get(key), dict | Stub) and (state := _find_state(source, content[key])):
            return state
    for name, value in content.items():
        if isinstance(value, Stub) and value.kind.startswith(UNREAD):
            pickles.refuse(source, f"its tensor {name} is not of plain numbers")
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}


def _match_names(source: Path, state: State, parts: tuple[str, ...]) -> tuple[State, list[str]]:
    """Return {name in the net: tensor}, and the names of tensors that do not belong to the net."""
    net_state: State = {}
    left_out = []
    for name, tensor in state.items():
        words = name.split(".")
        if not parts and words[0] == "module":
            words = words[1:]
        while parts and words[0] in PREFIXES and words[0] not in parts and len(words) > 1:
            words = words[1:]
        short = ".".join(words)
        if parts and words[0] not in parts:
            left_out.append(short)
            continue
        if short in net_state:
            raise UserError(f"{source} holds {short} with and without a prefix: it is not the published file")
        net_state[short] = tensor
    if parts and not net_state:  # another net is kept unchanged: a later check reports how it differs
        return _match_names(source, state, ())
    return net_state, sorted(left_out)


def convert_state_dict(
    source: Path, target: Path, parts: tuple[str, ...] = (), dropped: str = "", float32: bool = False
) -> dict:
    """Write the state dict of ``source`` as the safetensors file ``target``, one tensor in memory at a time.

    ``dropped``: end of the names of tensors that some copies hold and no net needs; ``float32``: write all floats so.
    Returns its numbers of tensors and values, and the tensors of other parts if any. Raises like :func:`read_state`.
    """
    state, left_out = read_state(source, parts)
    kinds = tensors.tensor_kinds(state)
    kinds = {name: kind for name, kind in kinds.items() if not dropped or not name.endswith(dropped)}
    kinds = tensors.floats_as_float32(kinds) if float32 else kinds
    tensors.stream_tensors(target, kinds, state.__getitem__)
    return tensors.count_values(kinds) | ({"left_out": left_out} if left_out else {})
