"""Converting published state dicts to safetensors, without running any code in them.

Only tensors are kept. The optimiser, the epoch, training arguments and other contents of a checkpoint are dropped.
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
"""Keys under which training code stores the state dict or the net. The first key that exists is used."""
PREFIXES = ("module", "model", "network", "net", "_orig_mod")  # prefixes that training code adds to tensor names
UNREAD = "torch._utils._rebuild"  # prefix of functions for unsupported tensors: sparse, quantized, without numbers
State = dict[str, torch.Tensor]


def read_state(source: Path, parts: tuple[str, ...] = ()) -> tuple[State, list[str]]:
    """Read a torch checkpoint or safetensors file; return {name: tensor} of the net, and names of dropped tensors.

    The tensors of a safetensors file or torch archive stay in the file until they are used. ``parts``: the words with
    which the names of the net's tensors begin. Prefixes of training code before these words are removed, and other
    tensors are dropped. Without ``parts``, or if no name matches, only the prefix ``module.`` is removed. Raises
    UserError if the file is damaged or malicious, or contains no state dict.
    """
    with open(source, "rb") as file:
        head = file.read(9)
    # a safetensors file begins with the length of its header, and the header is JSON
    if source.suffix == ".safetensors" or (head[8:9] == b"{" and head[:1] != b"\x80"):
        try:
            state = load_file(source)
        except (SafetensorError, OSError) as error:
            refuse_machine_fault(source, error)
            pickles.refuse(source, f"it is not a complete safetensors file ({error})")
    else:
        state = _find_state(source, pickles.read_checkpoint(source))
        if not state:
            raise UserError(f"{source} holds no state dict: download the file that docs/how-to/models.md names")
    if odd := next((name for name, value in state.items() if value.dtype not in tensors.DTYPE_CODES), None):
        pickles.refuse(source, f"its tensor {odd} is not a dense tensor of real numbers")
    return _match_names(source, state, parts)


def _find_state(source: Path, content: object) -> State:
    if isinstance(content, Stub):
        return pickles.read_state(source, pickles.unwrap_network(content)) if content.children else {}
    if not isinstance(content, dict):
        return {}
    for key in WRAPPERS:
        if isinstance(content.get(key), dict | Stub) and (state := _find_state(source, content[key])):
            return state
    for name, value in content.items():
        if isinstance(value, Stub) and value.kind.startswith(UNREAD):
            pickles.refuse(source, f"its tensor {name} is not a dense tensor of real numbers")
    return {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}


def _match_names(source: Path, state: State, parts: tuple[str, ...]) -> tuple[State, list[str]]:
    """Remove prefixes and select the net's tensors; return {name in the net: tensor}, and names of dropped tensors."""
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
            raise UserError(f"{source} holds the tensor {short} with and without a prefix: download the published file")
        net_state[short] = tensor
    if parts and not net_state:  # another net is kept, because a later check reports how it differs
        return _match_names(source, state, ())
    return net_state, sorted(left_out)


def convert_state_dict(
    source: Path, target: Path, parts: tuple[str, ...] = (), dropped: str = "", float32: bool = False
) -> dict:
    """Convert the state dict in ``source`` to the safetensors file ``target``, one tensor in memory at a time.

    ``parts`` and errors: as for :func:`read_state`; ``dropped``: suffix of the names of tensors to leave out;
    ``float32``: all floats become float32. Returns numbers of tensors and values, and names of dropped tensors.
    """
    state, left_out = read_state(source, parts)
    kinds = tensors.tensor_kinds(state)
    kinds = {name: kind for name, kind in kinds.items() if not dropped or not name.endswith(dropped)}
    kinds = tensors.floats_as_float32(kinds) if float32 else kinds
    tensors.stream_tensors(target, kinds, state.__getitem__)
    return tensors.count_values(kinds) | ({"left_out": left_out} if left_out else {})
