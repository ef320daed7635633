"""The interface of runners, which compute and apply gradients: ``plain`` in one process, ``deepspeed`` in several."""

import importlib
from datetime import timedelta
from typing import Protocol

import torch
from torch import nn


class RunnerRecipe(Protocol):
    """The part of a recipe that a runner needs. clip: maximum gradient norm; dtype: float32 or bfloat16."""

    clip: float
    dtype: str
    micro_batch: int

    def micro_batches_per_step(self, ranks: int) -> int:
        """Return the number of micro-batches per step and rank. Raises UserError if they do not divide."""
        ...


def make_runner(
    name: str,
    model: nn.Module,
    parameters: dict[str, nn.Parameter],
    optimiser: torch.optim.Optimizer,
    recipe: RunnerRecipe,
    device: torch.device,
    patience: timedelta,
):
    """Return the runner ``name``. ``parameters``: those that ``optimiser`` trains; ``patience``: as in ``deepspeed``.

    A parameter group of the optimiser may have a ``scale``, which multiplies the learning rate.
    """
    module = importlib.import_module(f"cxr.nets.fitting.{name}")
    return module.Runner(model, parameters, optimiser, recipe, device, patience)
