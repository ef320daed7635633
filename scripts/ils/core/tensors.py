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
        refuse(path, f"is missing or damaged ({error})")


def fill(net: nn.Module, tensors: dict[str, torch.Tensor], path: str | Path) -> None:
    """Give a net its tensors, as they are, each in its place. Raises UserError unless all fit and none is left over."""
    wanted = {name: tensor.shape for name, tensor in net.state_dict().items()}
    found = {name: tensor.shape for name, tensor in tensors.items()}
    faults = {
        "are missing": sorted(wanted.keys() - found.keys()),
        "are left over": sorted(found.keys() - wanted.keys()),
        "have another shape": sorted(name for name in wanted.keys() & found.keys() if wanted[name] != found[name]),
    }
    for fault, names in faults.items():
        if names:
            refuse(path, f"does not fit its net, {len(names)} tensors {fault}, the first {names[0]}")
    net.load_state_dict(tensors, assign=True)


def device_of(name: str) -> torch.device:
    """Return the device that ``compute.device`` means. Raises UserError if there is no such GPU.

    On a GPU, convolutions are kept from rounding their factors to ten bits, so that it finds what a CPU finds.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("compute.device is 'cuda', but PyTorch sees no GPU: choose 'auto' or 'cpu'")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    return torch.device(name)
