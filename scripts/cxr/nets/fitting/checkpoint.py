"""Checkpoints of a training in several processes. They hold whole tensors, so the number of processes may change.

A checkpoint is one safetensors file with the float32 weight and AdamW's two moments of each trained tensor. The header
holds AdamW's number of steps and the training's progress. Tensors are read and written one at a time.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from cxr.base.atomic import atomic_file
from cxr.base.errors import refuse_unreadable
from cxr.nets import tensors

FILE_NAME = "checkpoint.safetensors"
WEIGHT, MOMENTS = "weight", ("exp_avg", "exp_avg_sq")  # parts of a tensor; the moments are named as in AdamW
Gather = Callable[[str, str], torch.Tensor]
"""Function of (name, part) that returns a whole float32 tensor. ``part`` is ``WEIGHT`` or one of ``MOMENTS``. All
processes must call the function for the same tensors in the same order."""


def write_checkpoint(
    folder: Path, shapes: dict[str, tuple[int, ...]], gather: Gather, state: dict, steps: int, is_writer: bool
) -> None:
    """Write a checkpoint into ``folder`` atomically. All processes must call this, but only the one with ``is_writer``
    writes. ``shapes``: {name: shape of the tensor}, of the tensors that ``gather`` returns. ``state``: the training's
    progress, for the header. ``steps``: AdamW's number of steps, 0 if it has no moments yet."""
    parts = (WEIGHT, *MOMENTS) if steps else (WEIGHT,)
    kinds = {f"{part}/{name}": (shape, torch.float32) for part in parts for name, shape in shapes.items()}

    def get(key: str) -> torch.Tensor:
        part, _, name = key.partition("/")
        return gather(name, part)

    if not is_writer:
        for key in sorted(kinds):  # in the file's order, because all processes take part in gathering a tensor
            get(key)
        return
    with atomic_file(folder / FILE_NAME) as temporary:
        tensors.stream_tensors(temporary, kinds, get, {"state": json.dumps(state), "steps": str(steps)})


def read_checkpoint(folder: Path, take: Callable[[str, str, torch.Tensor], None]) -> tuple[dict, int] | None:
    """Pass all tensors to ``take(name, part, full_tensor)``, where ``part`` is "weight" or a moment. Return (state,
    AdamW's steps), or None if there is no checkpoint."""
    path = folder / FILE_NAME
    if not path.is_file():
        return None
    problem, remedy = f"{path} is damaged", "delete its folder to restart the training from the beginning"
    with refuse_unreadable(path, problem, remedy, SafetensorError, KeyError), safe_open(path, "pt") as file:
        for key in sorted(file.keys()):
            part, _, name = key.partition("/")
            take(name, part, file.get_tensor(key))
        return json.loads(file.metadata()["state"]), int(file.metadata()["steps"])
