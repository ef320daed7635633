"""The runner plain: one process, with torch only."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn

from cxr.base.atomic import atomic
from cxr.nets.fitting.engine import Demands


class Runner:
    """Gradients and updates in one process. With bfloat16, weights stay float32 and the passes run in bfloat16.

    ``patience`` has no effect, because there is no other process.
    """

    rank, ranks = 0, 1

    def __init__(
        self,
        model: nn.Module,
        parameters: dict[str, nn.Parameter],
        optimiser: torch.optim.Optimizer,
        recipe: Demands,
        device: torch.device,
        patience: timedelta,
    ):
        self.model, self.recipe, self.device = model.to(device), recipe, device
        self.parameters, self.optimiser = parameters, optimiser

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Have the whole model in this process, which it always is."""
        yield

    def forward(self, work: Callable[[nn.Module], dict]) -> dict:
        """Return the result of ``work(model)``, computed in the recipe's number type."""
        low = self.recipe.dtype == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16) if low else nullcontext():
            return work(self.model)

    def backward(self, loss: torch.Tensor, parts: int, last: bool) -> None:
        """Add a loss's gradient to that of the update, of whose ``parts`` micro-batches it may be the ``last``."""
        (loss / parts).backward()

    def update(self, rate: float) -> float:
        """Change the weights at the learning rate ``rate``; return the norm of the gradient before clipping.

        If the norm is not finite, no weight changes: one such step would spoil all weights and moments.
        """
        norm = float(torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.recipe.clip))
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        if math.isfinite(norm):
            self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return norm

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over the ranks."""
        return values

    def wait(self) -> None:
        """Wait for all ranks: there is one."""

    def save(self, folder: Path, state: dict) -> None:
        """Write weights, optimiser and ``state`` into ``folder`` atomically."""
        everything = {
            "state": state,
            "weights": {name: value.detach() for name, value in self.parameters.items()},
            "optimiser": self.optimiser.state_dict(),
        }
        with atomic(folder / "checkpoint.pt") as temporary:
            torch.save(everything, temporary)

    def load(self, folder: Path) -> dict | None:
        """Load the last checkpoint of :meth:`save` and return its ``state``; None without one."""
        path = folder / "checkpoint.pt"
        if not path.is_file():
            return None
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        with torch.no_grad():
            for name, value in self.parameters.items():
                value.copy_(checkpoint["weights"][name])
        self.optimiser.load_state_dict(checkpoint["optimiser"])
        return checkpoint["state"]
