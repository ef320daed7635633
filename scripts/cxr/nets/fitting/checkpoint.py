"""Checkpoints of a training over several processes. They hold whole tensors, so the number of processes may change.

A checkpoint is one safetensors file: the float32 weight and AdamW's two moments of each trained tensor, and in the
header AdamW's number of steps and the training's progress. It is read and written one tensor at a time.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from cxr.base.atomic import atomic
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.nets import tensors

NAME = "checkpoint.safetensors"
WEIGHT, MOMENTS = "weight", ("exp_avg", "exp_avg_sq")
"""The parts of a tensor, the moments as AdamW calls them."""
Gather = Callable[[str, str], torch.Tensor]
"""Returns the whole float32 tensor of (name, part); all processes ask for the same one at the same time."""


def write(
    folder: Path, shapes: dict[str, tuple[int, ...]], gather: Gather, state: dict, steps: int, first: bool
) -> None:
    """Write a checkpoint atomically; ``first``: whether this process is the one that writes.

    ``steps``: the optimiser's steps, 0 if it has no moments yet.
    """
    parts = (WEIGHT, *MOMENTS) if steps else (WEIGHT,)
    kinds = {f"{part}/{name}": (shape, torch.float32) for part in parts for name, shape in shapes.items()}

    def get(key: str) -> torch.Tensor:
        part, _, name = key.partition("/")
        return gather(name, part)

    if not first:
        for key in sorted(kinds):  # in the file's order, because each tensor is gathered from all processes
            get(key)
        return
    with atomic(folder / NAME) as temporary:
        tensors.stream(temporary, kinds, get, {"state": json.dumps(state), "steps": str(steps)})


def read(folder: Path, take: Callable[[str, str, torch.Tensor], None]) -> tuple[dict, int] | None:
    """Pass every tensor of a checkpoint to ``take(name, part, full_tensor)``; return its state and optimiser steps.

    None without a checkpoint. Raises UserError for a damaged one.
    """
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            for key in sorted(file.keys()):
                part, _, name = key.partition("/")
                take(name, part, file.get_tensor(key))
            return json.loads(about["state"]), int(about["steps"])
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        refuse_machine_fault(path, error)
        raise UserError(f"{path} is damaged ({error}): delete its folder, and the training starts again") from None
