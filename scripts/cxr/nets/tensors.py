"""Reading and writing of weights in safetensors files. It needs torch, so engines ``lite`` never import it."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import nn

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import is_not_from_input

FACTS = "facts"  # the only metadata key of the header: the order of several keys would change from run to run
DTYPE_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""{dtype: its name in the safetensors format}, for all dtypes that can be written."""
Kinds = dict[str, tuple[tuple[int, ...], torch.dtype]]  # {tensor name: (shape, dtype)}

REMEDY = "delete it and run snakemake weights again (docs/how-to/models.md)"  # for unusable weights made by a rule


def refuse_weights(path: str | Path, fault: str, remedy: str = REMEDY) -> NoReturn:
    """Raise UserError "<path> <fault>: <remedy>" for unusable weights."""
    raise UserError(f"{path} {fault}: {remedy}")


def stream_tensors(
    path: str | Path, kinds: Kinds, get: Callable[[str], torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write a safetensors file with the tensors ``get(name)``. Only one of them is in memory at a time, whereas the
    safetensors library needs all.

    ``kinds``: {name: (shape, dtype)}. The file has the header's length, the header, and the values, wide types first
    for alignment. Raises ValueError if a tensor has a shape other than in ``kinds``.
    """
    header: dict[str, dict] = {"__metadata__": metadata} if metadata else {}
    end = 0
    names = sorted(kinds, key=lambda name: (-kinds[name][1].itemsize, name))
    for name in names:
        shape, dtype = kinds[name]
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": DTYPE_CODES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            shape, dtype = kinds[name]
            tensor = get(name).detach().to("cpu", dtype).contiguous()
            if tuple(tensor.shape) != shape:
                raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, not {shape}")
            file.write(tensor.reshape(-1).view(torch.uint8).numpy())
            del tensor  # before the next one is made


def write_weights(path: str | Path, kinds: Kinds, get: Callable[[str], torch.Tensor], facts: dict) -> dict[str, int]:
    """Write the tensors ``get(name)``, floats as float32, and ``facts`` in the header. Return the numbers of tensors
    and values. ``kinds``: {name: (shape, dtype)} of the tensors."""
    kinds = floats_as_float32(kinds)
    stream_tensors(path, kinds, get, {FACTS: json.dumps(facts, sort_keys=True)})
    return count_values(kinds)


def tensor_kinds(tensors: dict[str, torch.Tensor]) -> Kinds:
    """Return the shape and dtype of each tensor."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def floats_as_float32(kinds: Kinds) -> Kinds:
    """Return the shapes and dtypes of tensors with float32 in place of every floating-point dtype."""
    float32 = torch.float32
    return {name: (shape, float32 if dtype.is_floating_point else dtype) for name, (shape, dtype) in kinds.items()}


def count_values(kinds: Kinds) -> dict[str, int]:
    """Return {"tensors": number of tensors, "values": number of all their elements}."""
    return {"tensors": len(kinds), "values": sum(math.prod(shape) for shape, _ in kinds.values())}


def read_weights(path: str | Path, kind: str) -> tuple[dict[str, torch.Tensor], dict]:
    """Read (tensors, facts) that :func:`write_weights` wrote. Raises UserError if ``facts["kind"]`` is not ``kind``."""
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get(FACTS, "{}"))
            if not isinstance(facts, dict) or facts.get("kind") != kind:
                refuse_weights(path, f"holds no weights of {kind}")
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError) as error:
        refuse_machine_fault(path, error)
        refuse_weights(path, f"is missing or damaged ({error})")


def fill_net(net: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path, remedy: str = REMEDY) -> None:
    """Load tensors into a net without conversion. Raises UserError about ``path`` if name, shape or type differs."""
    shapes = [{name: tuple(value.shape) for name, value in part.items()} for part in (net.state_dict(), tensors)]
    if fault := describe_misfit(*shapes):
        refuse_weights(path, f"holds weights that do not fit the net ({fault})", remedy)
    try:
        net.load_state_dict(tensors, assign=True)
    except RuntimeError as error:  # integers where the net has floats
        if is_not_from_input(error):
            raise
        refuse_weights(path, "holds numbers of a type that does not fit the net", remedy)


def load_strict(net: nn.Module, path: str | Path) -> None:
    """Load a safetensors file into a net (also on the device ``meta``). Raises UserError unless all tensors match."""
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        refuse_machine_fault(path, error)
        refuse_weights(path, "is missing, damaged or not a safetensors file")
    fill_net(net, tensors, path)


def describe_misfit(net_shapes: dict[str, tuple[int, ...]], file_shapes: dict[str, tuple[int, ...]]) -> str:
    """Return how a file differs from a net ("it lacks bias"), or "" if it fits. Both arguments are {name: shape}."""
    missing, unknown = net_shapes.keys() - file_shapes.keys(), file_shapes.keys() - net_shapes.keys()
    differing = {name for name in net_shapes.keys() & file_shapes.keys() if net_shapes[name] != file_shapes[name]}
    for clause, names in (("it lacks", missing), ("the net has no", unknown), ("the shape differs for", differing)):
        if names:
            more_clause = f" and {len(names) - 1} more of {len(net_shapes)}" if len(names) > 1 else ""
            return f"{clause} {min(names)}{more_clause}"
    return ""
