"""Reading and writing weights as safetensors: tensors by name, and facts about their net in the header.

It needs torch, so code of the lite engines must not import it.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.nets.loading import misfit

FACTS = "facts"
"""The header's only metadata key: with several, their order in the file would change from run to run."""


CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""Number types that can be written, under the format's names."""
Kinds = dict[str, tuple[tuple[int, ...], torch.dtype]]
"""{tensor name: (shape, number type)}."""


def refuse(path: str | Path, fault: str) -> NoReturn:
    """Raise UserError for weights that the rules made but that cannot be used."""
    raise UserError(f"{path} {fault}: delete it and run snakemake weights again (docs/how-to/models.md)")


def stream(
    path: str | Path, kinds: Kinds, get: Callable[[str], torch.Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors, each made by ``get(name)`` when its turn comes, as one safetensors file; one is held at a time.

    The library safetensors writes only tensors that are all in memory. The layout follows its documentation: length of
    the header, header, values; values of wide types come first, so that each is aligned to its type.
    Raises ValueError for a tensor whose shape differs from ``kinds``.
    """
    header, end = {"__metadata__": metadata} if metadata else {}, 0
    names = sorted(kinds, key=lambda name: (-kinds[name][1].itemsize, name))
    for name in names:
        shape, dtype = kinds[name]
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        header[name] = {"dtype": CODES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            shape, dtype = kinds[name]
            tensor = get(name).detach().to("cpu", dtype).contiguous()
            if tuple(tensor.shape) != shape:
                raise ValueError(f"{name} has the shape {tuple(tensor.shape)} and not {shape}")
            file.write(tensor.reshape(-1).view(torch.uint8).numpy())
            del tensor  # before the next one is made


def write(path: str | Path, kinds: Kinds, get: Callable[[str], torch.Tensor], facts: dict) -> dict[str, int]:
    """Write tensors like :func:`stream`, floats as float32, with ``facts`` of plain builtins.

    Returns the numbers of tensors and of values.
    """
    kinds = as_float32(kinds)
    stream(path, kinds, get, {FACTS: json.dumps(facts, sort_keys=True)})
    return size_of(kinds)


def kinds_of(tensors: dict[str, torch.Tensor]) -> Kinds:
    """Return shapes and number types of tensors."""
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in tensors.items()}


def as_float32(kinds: Kinds) -> Kinds:
    """Return the kinds with float32 for all floats."""
    return {
        name: (shape, torch.float32 if dtype.is_floating_point else dtype) for name, (shape, dtype) in kinds.items()
    }


def size_of(kinds: Kinds) -> dict[str, int]:
    """Return the numbers of tensors and of values."""
    return {"tensors": len(kinds), "values": sum(math.prod(shape) for shape, _ in kinds.values())}


def read(path: str | Path, kind: str) -> tuple[dict[str, torch.Tensor], dict]:
    """Return the tensors and facts of a file written by :func:`write`, whose facts must name this ``kind``.

    Raises UserError if the file is missing, damaged or of another kind.
    """
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get(FACTS, "{}"))
            if not isinstance(facts, dict) or facts.get("kind") != kind:
                refuse(path, f"holds no weights of {kind}")
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError) as error:
        refuse_machine_fault(path, error)
        refuse(path, f"is missing or damaged ({error})")


def fill(net: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """Load the tensors into a net without conversion. Raises UserError unless all fit and none is left over."""
    expected_shapes = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    if fault := misfit(expected_shapes, {name: tuple(tensor.shape) for name, tensor in tensors.items()}):
        refuse(path, f"holds the weights of another net, for {fault}")
    try:
        net.load_state_dict(tensors, assign=True)
    except RuntimeError:  # integers where the net has floats
        refuse(path, "holds numbers of another type than the net's")
