"""The runner deepspeed: ZeRO-2, one process a GPU, as the published code trains."""

import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import deepspeed
import torch
from deepspeed import comm

from ils.rosalia.model import Rosalia
from ils.training import parts
from ils.training.recipe import Recipe


class Runner:
    """Gradients and updates shared out over processes; see :class:`ils.training.plain.Runner`.

    With bfloat16 the model is bfloat16, and the optimiser keeps float32 weights of its own.
    """

    def __init__(self, model: Rosalia, recipe: Recipe, device: torch.device):
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        deepspeed.init_distributed(dist_backend="nccl" if device.type == "cuda" else "gloo", verbose=False)
        self.rank, self.ranks, self.device = comm.get_rank(), comm.get_world_size(), device
        self.parameters = parts.choose(model, recipe.trained)
        self.engine, self.optimiser, _, _ = deepspeed.initialize(
            model=model.to(self.device),
            model_parameters=list(self.parameters.values()),
            optimizer=parts.optimiser(self.parameters, recipe),
            config={
                "train_micro_batch_size_per_gpu": recipe.micro_batch,
                "gradient_accumulation_steps": recipe.together(self.ranks),
                "gradient_clipping": recipe.clip,
                "bf16": {"enabled": recipe.dtype == "bfloat16"},
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {
                    "stage": 2,
                    "contiguous_gradients": True,
                    "overlap_comm": device.type == "cuda",
                    "reduce_scatter": True,
                    "reduce_bucket_size": 5e8,
                    "allgather_bucket_size": 5e8,
                },
            },
        )
        self.model = model

    def forward(self, work: Callable[[Rosalia], dict]) -> dict:
        """Return what ``work(model)`` gives; gradients are gathered as they come."""
        return work(self.engine)

    def backward(self, loss: torch.Tensor, parts: int, last: bool) -> None:
        """Add a loss's gradient to that of the update, of whose ``parts`` micro-batches it may be the ``last``."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * (self.engine.gradient_accumulation_steps() / parts))
        if not last:
            self.engine.step()  # which only counts

    def update(self, rate: float) -> float:
        """Change the weights at the learning rate ``rate``; return the norm of the gradient before it was clipped.

        Where that is no finite number nothing changes, on any rank.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = rate
        self.engine.step()
        return math.nan if self.optimiser.overflow else float(self.engine.get_global_grad_norm())

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over the ranks."""
        held = values.to(self.device)
        comm.all_reduce(held)
        return held.cpu()

    def save(self, folder: Path, state: dict) -> None:
        """Write all that a training goes on from into ``folder``; what was there before goes when it is whole."""
        tag = f"update{state['update']}"
        self.engine.save_checkpoint(str(folder), tag=tag, client_state={"state": state}, exclude_frozen_parameters=True)
        comm.barrier()
        if self.rank == 0:
            for other in folder.glob("update*"):
                if other.name != tag:
                    shutil.rmtree(other)

    def load(self, folder: Path) -> dict | None:
        """Take up what :meth:`save` wrote last and return its ``state``; None if there is nothing."""
        if not (folder / "latest").is_file():
            return None
        _, held = self.engine.load_checkpoint(str(folder), load_module_strict=False)
        return held["state"]
