"""The runner ``plain``, which trains in one process with torch alone."""

import logging
import math
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn

from cxr.base.atomic import atomic_file
from cxr.base.errors import refuse_machine_fault
from cxr.nets.microbatch import SharedBatch

log = logging.getLogger("cxr")
FILE_NAME = "checkpoint.pt"


class Runner:
    """Runner that computes and applies gradients in one process. For bfloat16 it uses autocast on float32 weights."""

    rank, ranks = 0, 1

    def __init__(
        self,
        model: nn.Module,
        parameters: dict[str, nn.Parameter],
        optimiser: torch.optim.Optimizer,
        recipe: SharedBatch,
        device: torch.device,
        patience: timedelta,
    ):
        self.model, self.recipe, self.device = model.to(device), recipe, device
        self.parameters, self.optimiser = parameters, optimiser

    def gathered(self) -> nullcontext:
        """Return a context that does nothing, because the whole model is always in this process."""
        return nullcontext()

    def forward(self, work: Callable[[nn.Module], dict]) -> dict:
        """Return the result of ``work(model)``, computed with the type ``dtype`` of the training's options."""
        is_bfloat16 = self.recipe.dtype == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if is_bfloat16 else nullcontext():
            return work(self.model)

    def backward(self, loss: torch.Tensor, parts: int, last: bool) -> None:
        """Add the gradient of the loss of one of a step's ``parts`` micro-batches. ``last``: whether it is the last."""
        (loss / parts).backward()

    def take_step(self, rate: float) -> float:
        """Take a step at the learning rate ``rate`` if the gradient norm is finite. Return the norm before clipping."""
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.clip))
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        if math.isfinite(norm):
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return norm

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return ``values``, which is the sum over the ranks, because there is only one."""
        return values

    def wait(self) -> None:
        """Do nothing, because there is only one rank."""

    def save(self, folder: Path, state: dict) -> None:
        """Write weights, optimiser and ``state`` into ``folder`` atomically."""
        weights = {name: value.detach() for name, value in self.parameters.items()}
        write_state(folder / FILE_NAME, {"state": state, "weights": weights, "optimiser": self.optimiser.state_dict()})

    def load(self, folder: Path) -> dict | None:
        """Load the last checkpoint that :meth:`save` wrote. Return its ``state``, or None if there is none."""
        checkpoint = read_state(folder / FILE_NAME)
        if checkpoint is None:
            return None
        with torch.no_grad():
            for name, value in self.parameters.items():
                value.copy_(checkpoint["weights"][name])
        self.optimiser.load_state_dict(checkpoint["optimiser"])
        return checkpoint["state"]


def write_state(path: Path, state: dict) -> None:
    """Write a dict of tensors and built-in types atomically."""
    with atomic_file(path) as temporary:
        torch.save(state, temporary)


def read_state(path: Path) -> dict | None:
    """Read a file of :func:`write_state`. Return None if it is missing, and None with a warning if it is damaged."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else None
    except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
        refuse_machine_fault(path, error)
        log.warning("%s is damaged: the training restarts at its first step", path)
        return None
