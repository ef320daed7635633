"""The interface of runners, which compute and apply gradients: ``plain`` in one process, ``deepspeed`` in several."""

import importlib
from datetime import timedelta
from typing import Protocol

import torch
from torch import nn


class Demands(Protocol):
    """What a runner needs of a training's recipe. clip: greatest norm of a gradient; dtype: float32 or bfloat16."""

    clip: float
    dtype: str
    micro_batch: int

    def together(self, ranks: int) -> int:
        """Return each rank's number of micro-batches per update. Raises UserError if the batch does not divide."""
        ...


def make_runner(
    name: str,
    model: nn.Module,
    parameters: dict[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    recipe: Demands,
    device: torch.device,
    patience: timedelta,
):
    """Return the runner ``name``; parameters: those that ``optimiser`` trains; patience: as in ``deepspeed``.

    A group of the optimiser may have ``scale``, a factor of the learning rate.
    """
    module = importlib.import_module(f"cxr.nets.fitting.{name}")
    return module.Runner(model, parameters, optimiser, recipe, device, patience)
