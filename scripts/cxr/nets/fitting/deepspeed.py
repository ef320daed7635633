"""The runner deepspeed: one process per GPU, by ZeRO-2 as in ROSALIA's published code, or by ZeRO-3.

ZeRO-2 shares gradients and AdamW's moments between the processes; ZeRO-3 the weights too.
"""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import deepspeed
import torch
from deepspeed import comm
from deepspeed.utils import (
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_set_local_fp32_param,
    safe_set_local_optimizer_state,
)
from torch import distributed, nn
from torch.distributed import distributed_c10d

from cxr.nets.fitting import checkpoint
from cxr.nets.fitting.engine import Demands

WRITING = timedelta(days=1)
"""How long ranks wait for a rank that writes."""
SHARED_WEIGHTS = {"stage3_param_persistence_threshold": 0, "stage3_gather_16bit_weights_on_model_save": False}
"""ZeRO-3: every tensor is shared, the small ones too."""


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
        self.parameters, self.stage = parameters, getattr(recipe, "zero", 2)
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
                    "stage": self.stage,
                    **({"elastic_checkpoint": True} if self.stage == 2 else SHARED_WEIGHTS),
                    "contiguous_gradients": True,
                    "overlap_comm": device.type == "cuda",
                    "reduce_scatter": True,
                    "reduce_bucket_size": 5e8,
                    "allgather_bucket_size": 5e8,
                },
            },
        )
        self.model = model
        if self.stage == 3:  # DeepSpeed takes a step of nothing to make the moments; AdamW would count it
            self.optimiser.optimizer.state.clear()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Have the whole model in every process, to write it; all processes must come."""
        if self.stage == 2:
            yield
            return
        with deepspeed.zero.GatheredParameters(list(self.model.parameters())):
            yield

    @property
    def _flats(self) -> list[torch.Tensor]:
        """This process's share of the float32 weights."""
        two = self.stage == 2
        return self.optimiser.single_partition_of_fp32_groups if two else self.optimiser.fp32_partitioned_groups_flat

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
        total = values.to(self.device)
        comm.all_reduce(total)
        return total.cpu()

    def wait(self) -> None:
        """Wait for all ranks for as long as it takes, because one may be writing gigabytes."""
        distributed.barrier(self._patient)

    def save(self, folder: Path, state: dict) -> None:
        """Write a checkpoint into ``folder`` atomically."""
        shapes = {
            name: tuple(getattr(parameter, "ds_shape", parameter.shape)) for name, parameter in self.parameters.items()
        }
        checkpoint.write(folder, shapes, self._whole, state, self._steps(), self.rank == 0)
        self.wait()

    def load(self, folder: Path) -> dict | None:
        """Load the last checkpoint, over any number of ranks; return its ``state``, None without one."""
        for flat in self._flats:
            # as AdamW makes them at its first step
            moments = {part: torch.zeros_like(flat) for part in checkpoint.MOMENTS}
            self.optimiser.optimizer.state[flat] = {"step": torch.tensor(0.0)} | moments
        state_and_steps = checkpoint.read(folder, self._take)
        steps = state_and_steps[1] if state_and_steps else 0
        for flat in self._flats:
            if steps:
                self.optimiser.optimizer.state[flat]["step"].fill_(steps)
            else:
                del self.optimiser.optimizer.state[flat]
        return state_and_steps[0] if state_and_steps else None

    def _steps(self) -> int:
        """Return the optimiser's number of steps; skipped updates do not count."""
        states = [self.optimiser.optimizer.state.get(flat) for flat in self._flats]
        return int(states[0]["step"]) if states[0] else 0

    def _whole(self, name: str, part: str) -> torch.Tensor:
        """Assemble a tensor that the ranks share."""
        if self.stage == 3:
            parameter = self.parameters[name]
            full_tensor = (
                safe_get_full_fp32_param(parameter)
                if part == checkpoint.WEIGHT
                else safe_get_full_optimizer_state(parameter, part)
            )
            return full_tensor.view(parameter.ds_shape)
        flat_tensor = torch.zeros(self.parameters[name].numel(), device=self.device)
        if piece := self._piece(name, part):
            piece_slice, piece_values = piece
            flat_tensor[piece_slice] = piece_values
        comm.all_reduce(flat_tensor)
        return flat_tensor.view(self.parameters[name].shape)

    def _take(self, name: str, part: str, full_tensor: torch.Tensor) -> None:
        """Copy this rank's part of a whole tensor."""
        full_tensor = full_tensor.to(self.device)
        if self.stage == 3:
            self._take_shared(self.parameters[name], part, full_tensor)
            return
        if piece := self._piece(name, part):
            piece_slice, piece_values = piece
            piece_values.copy_(full_tensor.view(-1)[piece_slice])
        if part == checkpoint.WEIGHT:
            self.parameters[name].data.copy_(full_tensor)

    def _take_shared(self, parameter: nn.Parameter, part: str, full_tensor: torch.Tensor) -> None:
        """Copy this rank's part of a whole tensor, of which every rank has as much; the last part is filled up."""
        count = parameter.ds_tensor.ds_numel
        flat = torch.nn.functional.pad(full_tensor.flatten(), (0, count * self.ranks - full_tensor.numel()))
        rank_part = flat.narrow(0, count * self.rank, count)
        if part != checkpoint.WEIGHT:
            safe_set_local_optimizer_state(parameter, rank_part, part)
            return
        safe_set_local_fp32_param(parameter, rank_part)
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(full_tensor)

    def _piece(self, name: str, part: str) -> tuple[slice, torch.Tensor] | None:
        """Return this rank's slice of a tensor and the float32 memory that holds it; None if it holds none."""
        mapping = self.parameters[name]._hp_mapping
        if mapping is None:
            return None
        flat = self.optimiser.single_partition_of_fp32_groups[mapping.param_group_index]
        memory = flat if part == checkpoint.WEIGHT else self.optimiser.optimizer.state[flat][part]
        tensor_fragment, memory_fragment = mapping.lp_fragment_address, mapping.hp_fragment_address
        return slice(tensor_fragment.start, tensor_fragment.start + tensor_fragment.numel), memory.data.narrow(
            0, memory_fragment.start, memory_fragment.numel
        )
