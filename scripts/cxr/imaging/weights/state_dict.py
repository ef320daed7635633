"""Converting published state dicts to safetensors, without running any code in them.

A checkpoint may hold more than its net: an optimiser, an epoch, the arguments of the training. These are dropped.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.imaging.weights import pickles
from cxr.imaging.weights.stubs import Array, Stub
from cxr.nets import tensors

WRAPPERS = ("model_state_dict", "state_dict", "model", "module", "network", "net", "weights", "params", "ema")
"""Keys under which training code stores the state dict or the net; the first existing one is used."""
PREFIXES = ("module", "model", "network", "net", "_orig_mod")
"""Prefixes that training code adds to the names of a net's tensors."""
UNREAD = "torch._utils._rebuild"  # prefixes of unsupported kinds of tensors: sparse, quantized, without numbers


class State(NamedTuple):
    """Tensors of a file by name, each read on demand; ``left_out``: names of those that do not belong to the net."""

    kinds: tensors.Kinds
    get: Callable[[str], torch.Tensor]
    left_out: list[str]


@contextmanager
def open_state(source: Path, parts: tuple[str, ...] = ()) -> Iterator[State]:
    """Open a checkpoint of torch, in either of its formats, or a safetensors file; use inside ``with``.

    ``parts``: the first words of the names of the net's tensors. Prefixes of training code before them are removed, and
    other tensors are dropped. Without ``parts``, or if no name matches, only ``module.`` is removed.

    Raises UserError with one sentence for a file that is damaged, is malicious, or holds no state dict.
    """
    with open(source, "rb") as file:
        head = file.read(9)
    # a safetensors file begins with the length of its header, and the header is JSON
    if source.suffix == ".safetensors" or (head[8:9] == b"{" and head[:1] != b"\x80"):
        try:
            with safe_open(source, "pt") as file:
                kinds = {name: _kind(file.get_slice(name)) for name in file.keys()}  # noqa: SIM118 (no mapping)
                source_names, left_out = _match_names(source, kinds, parts)
                net_kinds = {name: kinds[source_name] for name, source_name in source_names.items()}
                yield State(net_kinds, lambda name: file.get_tensor(source_names[name]), left_out)
        except (SafetensorError, OSError) as error:
            refuse_machine_fault(source, error)
            pickles.refuse(source, f"it is no whole safetensors file ({error})")
        return
    saved = pickles.read_checkpoint(source)
    arrays = _arrays(saved, saved.root)
    if not arrays:
        raise UserError(f"{source} holds no state dict: it is not the file that docs/how-to/models.md names")
    source_names, left_out = _match_names(source, arrays, parts)
    with saved.reading() as tensor:
        array_by_name = {name: arrays[source_name] for name, source_name in source_names.items()}
        kinds = {name: (array.shape, array.storage.dtype) for name, array in array_by_name.items()}
        yield State(kinds, lambda name: tensor(array_by_name[name]), left_out)


def _kind(part) -> tuple[tuple[int, ...], torch.dtype]:
    code = part.get_dtype()
    if code not in _DTYPES:
        raise SafetensorError(f"numbers of the type {code}")
    return tuple(part.get_shape()), _DTYPES[code]


_DTYPES = {code: dtype for dtype, code in tensors.DTYPE_CODES.items()}


def _arrays(saved: pickles.Saved, content: object) -> dict[str, Array]:
    """Return the tensors of a state dict or a net, wherever the checkpoint stores it; empty if there is none."""
    if isinstance(content, Stub):
        return saved.arrays(pickles.unwrap_network(content)) if content.children else {}
    if not isinstance(content, dict):
        return {}
    for key in WRAPPERS:
        if isinstance(content.get(key), dict | Stub) and (arrays := _arrays(saved, content[key])):
            return arrays
    for name, value in content.items():
        is_stub = isinstance(value, Stub) and value.kind.startswith(UNREAD)
        if value.storage.dtype is None if isinstance(value, Array) else is_stub:
            pickles.refuse(saved.path, f"its tensor {name} is not of plain numbers")
    return {str(name): value for name, value in content.items() if isinstance(value, Array)}


def _match_names(source: Path, source_tensors: dict, parts: tuple[str, ...]) -> tuple[dict[str, str], list[str]]:
    """Return {name in the net: name in the file}, and the names of tensors that do not belong to the net."""
    source_names: dict[str, str] = {}
    left_out = []
    for name in source_tensors:
        words = str(name).split(".")
        if not parts and words[0] == "module":
            words = words[1:]
        while parts and words[0] in PREFIXES and words[0] not in parts and len(words) > 1:
            words = words[1:]
        short = ".".join(words)
        if parts and words[0] not in parts:
            left_out.append(short)
            continue
        if short in source_names:
            raise UserError(f"{source} holds {short} with and without a prefix: it is not the published file")
        source_names[short] = name
    if parts and not source_names:  # another net is kept unchanged: a later check reports how it differs
        return _match_names(source, source_tensors, ())
    return source_names, sorted(left_out)


def convert_state_dict(
    source: Path, target: Path, parts: tuple[str, ...] = (), dropped: str = "", float32: bool = False
) -> dict:
    """Write the state dict of ``source`` as the safetensors file ``target``, one tensor in memory at a time.

    ``dropped``: end of the names of tensors that some copies hold and no net needs; ``float32``: write all floats so.
    Returns its numbers of tensors and values, and the tensors of other parts if any. Raises like :func:`open_state`.
    """
    with open_state(source, parts) as state:
        kinds = {name: kind for name, kind in state.kinds.items() if not dropped or not name.endswith(dropped)}
        kinds = tensors.floats_as_float32(kinds) if float32 else kinds
        tensors.stream_tensors(target, kinds, state.get)
        return tensors.count_values(kinds) | ({"left_out": state.left_out} if state.left_out else {})
