"""Large nets in torch: the device they run on, and weights that are exactly the net's or refused in one sentence."""

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from ils.core.engines import Setup
from ils.core.run import UserError

REMEDY = "delete it and run `snakemake weights` again (docs/models.md)"


def device_of(setup: Setup) -> torch.device:
    """Return where an engine's net runs. Raises UserError if a GPU is asked for and there is none."""
    there = torch.cuda.is_available()
    if setup.device == "cuda" and not there:
        raise UserError("compute.device is 'cuda', but torch sees no GPU here: choose auto or cpu")
    return torch.device("cuda" if there and setup.device != "cpu" else "cpu")


def read_tensors(path: str | Path, remedy: str = REMEDY) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """Return the tensors of a safetensors file and its header's metadata. Raises UserError."""
    if not Path(path).is_file():
        raise UserError(f"there is no file {path}: run `snakemake weights` (docs/models.md)")
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(f"{path} is damaged or no safetensors file ({reason}): {remedy}") from None


def fill(net: torch.nn.Module, tensors: dict[str, torch.Tensor], path: str | Path, remedy: str = REMEDY) -> None:
    """Give a net its weights, all of them and nothing else; it may have been made on the device ``meta``.

    The weights keep the number type of the file. Raises UserError if one is missing, left over or of another shape.
    """
    wanted = net.state_dict()
    missing = sorted(wanted.keys() - tensors.keys())
    foreign = sorted(tensors.keys() - wanted.keys())
    shaped = sorted(name for name in wanted.keys() & tensors.keys() if wanted[name].shape != tensors[name].shape)
    faults = [_told(missing, "missing"), _told(foreign, "left over"), _told(shaped, "of another shape")]
    if any(faults):
        told = "; ".join(filter(None, faults))
        raise UserError(f"{path} holds the weights of another net than {type(net).__name__} ({told}): {remedy}")
    net.load_state_dict(tensors, assign=True)


def _told(names: Iterable[str], what: str) -> str:
    names = list(names)
    return f"{len(names)} {what}, the first {names[0]}" if names else ""
