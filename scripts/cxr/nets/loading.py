"""Loading a net's weights from safetensors; names and shapes must fit exactly."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.faults import no_inputs


def load_strict(net: torch.nn.Module, path: str | Path) -> None:
    """Load the weights of a safetensors file, which must fit exactly, into a net (also one on the device ``meta``).

    Raises UserError with one sentence for a file that is missing or damaged or belongs to another net.
    """
    expected_shapes = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    remedy = "delete it and run snakemake weights again (docs/how-to/models.md)"
    try:
        with safe_open(path, "pt") as file:
            file_shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        refuse_machine_fault(path, error)
        raise UserError(f"{path} is missing, damaged or no safetensors file: {remedy}") from None
    if fault := misfit(expected_shapes, file_shapes):
        raise UserError(f"{path} holds the weights of another net, for {fault}: {remedy}")
    try:
        net.load_state_dict(load_file(path), assign=True)
    except RuntimeError as error:  # integers where the net has floats
        if no_inputs(error):
            raise
        raise UserError(f"{path} holds numbers of another type than the net's: {remedy}") from None


def misfit(expected_shapes: dict[str, tuple[int, ...]], file_shapes: dict[str, tuple[int, ...]]) -> str:
    """Return a clause on how a file's tensors ({name: shape}) differ from those of a net; "" if they do not."""
    clauses = {
        "it lacks": expected_shapes.keys() - file_shapes.keys(),
        "the net has no": file_shapes.keys() - expected_shapes.keys(),
        "the shape differs of": {
            name for name in expected_shapes.keys() & file_shapes.keys() if expected_shapes[name] != file_shapes[name]
        },
    }
    for clause, names in clauses.items():
        if names:
            more_clause = f" and {len(names) - 1} more of {len(expected_shapes)}" if len(names) > 1 else ""
            return f"{clause} {min(names)}{more_clause}"
    return ""
