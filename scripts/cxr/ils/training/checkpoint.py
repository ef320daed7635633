"""What a training over several processes resumes from: whole tensors, whatever number of processes share them.

One safetensors file: of each trained tensor its float32 weight and AdamW's two moments; in the header the number of
steps that AdamW has done, and how far the training is. It is read and written a tensor at a time.
"""

import json
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from cxr.base.atomic import atomic
from cxr.base.errors import UserError
from cxr.nets import tensors

NAME = "checkpoint.safetensors"
WEIGHT, MOMENTS = "weight", ("exp_avg", "exp_avg_sq")
"""The parts of a tensor, the moments as AdamW calls them."""
Gather = Callable[[str, str], torch.Tensor]
"""Of (tensor, part) the whole, float32; all processes ask for the same at the same time."""


def write(
    folder: Path, shapes: dict[str, tuple[int, ...]], gather: Gather, state: dict, steps: int, first: bool
) -> None:
    """Write a checkpoint, all or nothing; ``first``: whether this process is the one that writes.

    ``steps``: of the optimiser, 0 where it has no moments yet.
    """
    parts = (WEIGHT, *MOMENTS) if steps else (WEIGHT,)
    kinds = {f"{part}/{name}": (shape, torch.float32) for part in parts for name, shape in shapes.items()}

    def get(key: str) -> torch.Tensor:
        part, _, name = key.partition("/")
        return gather(name, part)

    if not first:
        for key in sorted(kinds):  # in the order of the file, for each is gathered from all
            get(key)
        return
    with atomic(folder / NAME) as temporary:
        tensors.stream(temporary, kinds, get, {"state": json.dumps(state), "steps": str(steps)})


def read(folder: Path, take: Callable[[str, str, torch.Tensor], None]) -> tuple[dict, int] | None:
    """Give every tensor of a checkpoint to ``take(name, part, whole)``; return its state and the optimiser's steps.

    None if there is none. Raises UserError for one that is damaged.
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
        raise UserError(f"{path} is damaged ({error}): delete its folder, and the training begins anew") from None
