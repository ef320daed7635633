"""Large nets in torch: the device that they run on, weights that fit to the last tensor, and how they are run.

The one module of the core that needs torch: the lite engines do without.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file

from ils.core.faults import no_inputs
from ils.core.run import UserError


def device_of(wanted: str) -> torch.device:
    """Return the device for ``compute.device``: ``auto`` takes a GPU if the job has one, else the CPU.

    Raises UserError where a GPU is asked for and there is none.
    """
    there = torch.cuda.is_available()
    if wanted == "cuda" and not there:
        raise UserError("compute.device is 'cuda', but this job sees no GPU: set it to auto, or ask for one")
    return torch.device("cuda" if there and wanted != "cpu" else "cpu")


def load_strict(net: torch.nn.Module, path: str | Path) -> None:
    """Give a net (also one on the device ``meta``) the weights of a safetensors file, which must fit exactly.

    Raises UserError with one sentence for a file that is missing, damaged or another net's.
    """
    wanted = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    remedy = "delete it and run snakemake weights again (docs/models.md)"
    try:
        with safe_open(path, "pt") as file:
            held = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        if no_inputs(error):
            raise
        raise UserError(f"{path} is missing, damaged or no safetensors file: {remedy}") from None
    if fault := misfit(wanted, held):
        raise UserError(f"{path} holds the weights of another net, for {fault}: {remedy}")
    try:
        net.load_state_dict(load_file(path), assign=True)
    except RuntimeError as error:  # whole numbers where a net has fractions
        if no_inputs(error):
            raise
        raise UserError(f"{path} holds numbers of another type than the net's: {remedy}") from None


def misfit(wanted: dict[str, tuple[int, ...]], held: dict[str, tuple[int, ...]]) -> str:
    """Say in a clause how the tensors of a file ({name: shape}) differ from those of a net; empty where they do not."""
    clauses = {
        "it lacks": wanted.keys() - held.keys(),
        "the net has no": held.keys() - wanted.keys(),
        "the shape differs of": {name for name in wanted.keys() & held.keys() if wanted[name] != held[name]},
    }
    for clause, names in clauses.items():
        if names:
            more = f" and {len(names) - 1} more of {len(wanted)}" if len(names) > 1 else ""
            return f"{clause} {min(names)}{more}"
    return ""


@contextmanager
def inference() -> Iterator[None]:
    """Run nets without gradients, in full float32 and by the same algorithms each time."""
    exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    with torch.inference_mode(), exact:
        yield
