"""Weights in safetensors files: tensors by name, and in the header plain facts about the net they belong to.

Not imported by the rest of the core: it needs torch, which the lite engines do without.
"""

import json
from pathlib import Path
from typing import NoReturn

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from ils.core.faults import no_inputs
from ils.core.nets import misfit
from ils.core.run import UserError

FACTS = "facts"
"""The header's only entry: with several, the order of their bytes would change from run to run."""


def refuse(path: str | Path, fault: str) -> NoReturn:
    """Raise UserError: weights that the rules made cannot be used."""
    raise UserError(f"{path} {fault}: delete it and run snakemake weights again (docs/models.md)")


def write(path: str | Path, tensors: dict[str, torch.Tensor], facts: dict) -> dict[str, int]:
    """Write tensors, floats as float32, with facts of plain builtins; return how many tensors and values there are."""
    plain = {
        name: (tensor.float() if tensor.is_floating_point() else tensor).clone().contiguous()
        for name, tensor in tensors.items()
    }
    # not save_file, which makes files that nobody else may read
    Path(path).write_bytes(save(plain, {FACTS: json.dumps(facts, sort_keys=True)}))
    return {"tensors": len(plain), "values": sum(tensor.numel() for tensor in plain.values())}


def read(path: str | Path, kind: str) -> tuple[dict[str, torch.Tensor], dict]:
    """Return the tensors and facts of a file of :func:`write` whose facts say that its ``kind`` is this one.

    Raises UserError if the file is missing, damaged or of another kind.
    """
    try:
        with safe_open(path, "pt") as file:
            facts = json.loads((file.metadata() or {}).get(FACTS, "{}"))
            if not isinstance(facts, dict) or facts.get("kind") != kind:
                refuse(path, f"holds no weights of {kind}")
            return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError, ValueError) as error:
        if no_inputs(error):
            raise
        refuse(path, f"is missing or damaged ({error})")


def fill(net: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """Give a net its tensors, as they are, each in its place. Raises UserError unless all fit and none is left over."""
    wanted = {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}
    if fault := misfit(wanted, {name: tuple(tensor.shape) for name, tensor in tensors.items()}):
        refuse(path, f"holds the weights of another net, for {fault}")
    try:
        net.load_state_dict(tensors, assign=True)
    except RuntimeError:  # whole numbers where a net has fractions
        refuse(path, "holds numbers of another type than the net's")
