"""What every training of the base of RadVLM's small model does: its arguments, its rates and its updates."""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import torch

WARMUP = 150
"""Updates in which the rate rises."""


def arguments(description: str) -> argparse.Namespace:
    """Return what the command line says: ``work``, the folder of the cohorts, and ``cores``."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path(".onevision"), help="where the cohorts are made")
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    given.work = given.work.resolve()
    return given


def rate(update: int, total: int) -> float:
    """Return a factor that rises to 1, then falls to 0 with the cosine."""
    if update < WARMUP:
        return (update + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (update - WARMUP) / (total - WARMUP)))


def step(optimiser: torch.optim.Optimizer, loss: torch.Tensor, values: Sequence[torch.Tensor], top: float) -> None:
    """Change ``values`` at the rate ``top``, times the ``scale`` of a group that has one."""
    for group in optimiser.param_groups:
        group["lr"] = top * group.get("scale", 1.0)
    optimiser.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(values, 1.0)
    optimiser.step()


def tell(what: str, update: int, total: int, loss: float) -> None:
    """Print the loss of every 250th update."""
    if (update + 1) % 250 == 0:
        print(f"{what}: {update + 1} of {total}, loss {loss:.4f}", flush=True)
