"""The runner deepspeed: ZeRO-2 with one process per GPU, as in the published code."""

import math
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import deepspeed
import torch
from deepspeed import comm
from torch import distributed, nn
from torch.distributed import distributed_c10d

from cxr.nets.fitting import checkpoint
from cxr.nets.fitting.engine import Demands

WRITING = timedelta(days=1)
"""How long ranks wait for a rank that writes."""


class Runner:
    """Gradients and updates distributed over processes; see :class:`cxr.nets.fitting.plain.Runner`.

    With bfloat16 the model is bfloat16, and the optimiser keeps its own float32 weights. ``patience``: how long a
    process waits for another that does not answer before it raises an error.
    """

    def __init__(
        self,
        model: nn.Module,
        parameters: dict[str, nn.Parameter],
        optimiser: torch.optim.Optimizer,
        recipe: Demands,
        device: torch.device,
        patience: timedelta,
    ):
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        # DeepSpeed sends gradients through groups made with torch's defaults, whatever it is given here
        distributed_c10d.default_pg_timeout = distributed_c10d.default_pg_nccl_timeout = patience
        backend = "nccl" if device.type == "cuda" else "gloo"
        deepspeed.init_distributed(dist_backend=backend, timeout=patience, verbose=False)
        self.rank, self.ranks, self.device = comm.get_rank(), comm.get_world_size(), device
        # a CPU group only for waiting: the other group times out after minutes
        self._patient = distributed.new_group(backend="gloo", timeout=WRITING)
        self.parameters = parameters
        self.engine, self.optimiser, _, _ = deepspeed.initialize(
            model=model.to(self.device),
            model_parameters=list(self.parameters.values()),
            optimizer=optimiser,
            config={
                "train_micro_batch_size_per_gpu": recipe.micro_batch,
                "gradient_accumulation_steps": recipe.together(self.ranks),
                "gradient_clipping": recipe.clip,
                "bf16": {"enabled": recipe.dtype == "bfloat16"},
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {
                    "stage": 2,
                    "elastic_checkpoint": True,
                    "contiguous_gradients": True,
                    "overlap_comm": device.type == "cuda",
                    "reduce_scatter": True,
                    "reduce_bucket_size": 5e8,
                    "allgather_bucket_size": 5e8,
                },
            },
        )
        self.model = model

    def forward(self, work: Callable[[nn.Module], dict]) -> dict:
        """Return the result of ``work(model)``; gradients are gathered as they are computed."""
        return work(self.engine)

    def backward(self, loss: torch.Tensor, parts: int, last: bool) -> None:
        """Add a loss's gradient to that of the update, of whose ``parts`` micro-batches it may be the ``last``."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * (self.engine.gradient_accumulation_steps() / parts))
        if not last:
            self.engine.step()  # only counts the micro-batch

    def update(self, rate: float) -> float:
        """Change the weights at the learning rate ``rate``; return the norm of the gradient before clipping.

        If the norm is not finite, no weight changes on any rank.
        """
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        self.engine.step()
        return math.nan if self.optimiser.overflow else float(self.engine.get_global_grad_norm())

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Add up a tensor over the ranks."""
        held = values.to(self.device)
        comm.all_reduce(held)
        return held.cpu()

    def wait(self) -> None:
        """Wait for all ranks for as long as it takes, because one may be writing gigabytes."""
        distributed.barrier(self._patient)

    def save(self, folder: Path, state: dict) -> None:
        """Write a checkpoint into ``folder`` atomically."""
        shapes = {name: tuple(parameter.shape) for name, parameter in self.parameters.items()}
        checkpoint.write(folder, shapes, self._whole, state, self._steps(), self.rank == 0)
        self.wait()

    def load(self, folder: Path) -> dict | None:
        """Load the last checkpoint, over any number of ranks; return its ``state``, None without one."""
        for flat in self.optimiser.single_partition_of_fp32_groups:
            # as AdamW makes them at its first step
            moments = {part: torch.zeros_like(flat) for part in checkpoint.MOMENTS}
            self.optimiser.optimizer.state[flat] = {"step": torch.tensor(0.0)} | moments
        held = checkpoint.read(folder, self._take)
        steps = held[1] if held else 0
        for flat in self.optimiser.single_partition_of_fp32_groups:
            if steps:
                self.optimiser.optimizer.state[flat]["step"].fill_(steps)
            else:
                del self.optimiser.optimizer.state[flat]
        return held[0] if held else None

    def _steps(self) -> int:
        """Return the optimiser's number of steps; skipped updates do not count."""
        states = [self.optimiser.optimizer.state.get(flat) for flat in self.optimiser.single_partition_of_fp32_groups]
        return int(states[0]["step"]) if states[0] else 0

    def _whole(self, name: str, part: str) -> torch.Tensor:
        """Assemble a tensor that the ranks share."""
        found = torch.zeros(self.parameters[name].numel(), device=self.device)
        if piece := self._piece(name, part):
            here, own = piece
            found[here] = own
        comm.all_reduce(found)
        return found.view(self.parameters[name].shape)

    def _take(self, name: str, part: str, whole: torch.Tensor) -> None:
        """Copy this rank's part of a whole tensor."""
        whole = whole.to(self.device)
        if piece := self._piece(name, part):
            here, own = piece
            own.copy_(whole.view(-1)[here])
        if part == checkpoint.WEIGHT:
            self.parameters[name].data.copy_(whole)

    def _piece(self, name: str, part: str) -> tuple[slice, torch.Tensor] | None:
        """Return this rank's slice of a tensor and the float32 memory that holds it; None if it holds none."""
        mapping = self.parameters[name]._hp_mapping
        if mapping is None:
            return None
        flat = self.optimiser.single_partition_of_fp32_groups[mapping.param_group_index]
        memory = flat if part == checkpoint.WEIGHT else self.optimiser.optimizer.state[flat][part]
        there, own = mapping.lp_fragment_address, mapping.hp_fragment_address
        return slice(there.start, there.start + there.numel), memory.data.narrow(0, own.start, own.numel)
