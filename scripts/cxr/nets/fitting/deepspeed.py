"""The runner ``deepspeed``, which trains in one process (rank) per GPU. As in ROSALIA's published code, ZeRO-2
partitions gradients and AdamW's moments over the processes. ZeRO-3, the other choice, also partitions the weights."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import deepspeed
import torch
from deepspeed import comm, utils
from torch import distributed, nn
from torch.distributed import distributed_c10d

from cxr.nets.fitting import checkpoint
from cxr.nets.microbatch import SharedBatch

WRITE_TIMEOUT = timedelta(days=1)  # time that ranks wait for a rank that writes files
ZERO3_OPTIONS = {"stage3_param_persistence_threshold": 0, "stage3_gather_16bit_weights_on_model_save": False}
"""Options that make ZeRO-3 partition every tensor, including small tensors."""


class Runner:
    """Runner that computes and applies gradients in several processes. It has the methods of
    :class:`cxr.nets.fitting.plain.Runner`. With bfloat16, the model is bfloat16, and the optimiser keeps its own
    float32 weights. ``patience``: time that a process waits for another process before it raises an error."""

    def __init__(
        self,
        model: nn.Module,
        parameters: dict[str, nn.Parameter],
        optimiser: torch.optim.Optimizer,
        recipe: SharedBatch,
        device: torch.device,
        patience: timedelta,
    ):
        if device.type == "cuda":
            device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
            torch.cuda.set_device(device)
        # DeepSpeed sends gradients through groups that use torch's default timeouts and ignore its ``timeout``
        distributed_c10d.default_pg_timeout = distributed_c10d.default_pg_nccl_timeout = patience
        backend = "nccl" if device.type == "cuda" else "gloo"
        deepspeed.init_distributed(dist_backend=backend, timeout=patience, verbose=False)
        self.rank, self.ranks, self.device = comm.get_rank(), comm.get_world_size(), device
        # a separate CPU group for waiting, because the default group times out after minutes
        self._waiting_group = distributed.new_group(backend="gloo", timeout=WRITE_TIMEOUT)
        self.parameters, self.stage = parameters, getattr(recipe, "zero", 2)
        self.engine, self.optimiser, _, _ = deepspeed.initialize(
            model=model.to(self.device),
            model_parameters=list(self.parameters.values()),
            optimizer=optimiser,
            config={
                "train_micro_batch_size_per_gpu": recipe.micro_batch,
                "gradient_accumulation_steps": recipe.micro_batches_per_step(self.ranks),
                "gradient_clipping": recipe.clip,
                "bf16": {"enabled": recipe.dtype == "bfloat16"},
                "zero_allow_untested_optimizer": True,
                "zero_optimization": {
                    "stage": self.stage,
                    **({"elastic_checkpoint": True} if self.stage == 2 else ZERO3_OPTIONS),
                    "contiguous_gradients": True,
                    "overlap_comm": device.type == "cuda",
                    "reduce_scatter": True,
                    "reduce_bucket_size": 5e8,
                    "allgather_bucket_size": 5e8,
                },
            },
        )
        self.model = model
        if self.stage == 3:  # DeepSpeed takes an empty step to create the moments, which AdamW would count
            self.optimiser.optimizer.state.clear()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Hold the whole model in every process inside this context, to write it. All processes must enter it."""
        if self.stage == 2:
            yield
            return
        with deepspeed.zero.GatheredParameters(list(self.model.parameters())):
            yield

    @property
    def _flat_weights(self) -> list[torch.Tensor]:
        """This process's partition of the float32 weights."""
        if self.stage == 2:
            return self.optimiser.single_partition_of_fp32_groups
        return self.optimiser.fp32_partitioned_groups_flat

    def forward(self, work: Callable[[nn.Module], dict]) -> dict:
        """Return the result of ``work(model)``, where ``model`` is DeepSpeed's wrapper of the model."""
        return work(self.engine)

    def backward(self, loss: torch.Tensor, parts: int, last: bool) -> None:
        """Add the gradient of the loss of one of a step's ``parts`` micro-batches. ``last``: whether it is the last."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * (self.engine.gradient_accumulation_steps() / parts))
        if not last:
            self.engine.step()  # only counts the micro-batch

    def take_step(self, rate: float) -> float:
        """Take a step at the learning rate ``rate``. Return the gradient norm, or NaN if all ranks skipped the step."""
        for group in self.optimiser.param_groups:
            group["lr"] = rate * group.get("scale", 1.0)
        self.engine.step()
        return math.nan if self.optimiser.overflow else float(self.engine.get_global_grad_norm())

    def sum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of a tensor over the ranks."""
        total = values.to(self.device)
        comm.all_reduce(total)
        return total.cpu()

    def wait(self) -> None:
        """Wait for all ranks, up to :data:`WRITE_TIMEOUT`, because one of them may be writing gigabytes."""
        distributed.barrier(self._waiting_group)

    def save(self, folder: Path, state: dict) -> None:
        """Write model, optimiser and ``state`` (progress) into a checkpoint in ``folder`` atomically."""
        shapes = {name: tuple(getattr(each, "ds_shape", each.shape)) for name, each in self.parameters.items()}
        # all ranks have taken the same number of steps, without skipped ones
        moments = self.optimiser.optimizer.state.get(self._flat_weights[0])
        steps = int(moments["step"]) if moments else 0
        checkpoint.write_checkpoint(folder, shapes, self._gather_tensor, state, steps, self.rank == 0)
        self.wait()

    def load(self, folder: Path) -> dict | None:
        """Load the last checkpoint, written by any number of ranks. Return its ``state``, or None if there is none."""
        for flat in self._flat_weights:
            # the same moments as AdamW creates at its first step
            moments = {part: torch.zeros_like(flat) for part in checkpoint.MOMENTS}
            self.optimiser.optimizer.state[flat] = {"step": torch.tensor(0.0)} | moments
        state_and_steps = checkpoint.read_checkpoint(folder, self._set_tensor)
        steps = state_and_steps[1] if state_and_steps else 0
        for flat in self._flat_weights:
            if steps:
                self.optimiser.optimizer.state[flat]["step"].fill_(steps)
            else:
                del self.optimiser.optimizer.state[flat]
        return state_and_steps[0] if state_and_steps else None

    def _gather_tensor(self, name: str, part: str) -> torch.Tensor:
        if self.stage == 3:
            parameter = self.parameters[name]
            if part == checkpoint.WEIGHT:
                return utils.safe_get_full_fp32_param(parameter).view(parameter.ds_shape)
            return utils.safe_get_full_optimizer_state(parameter, part).view(parameter.ds_shape)
        flat_tensor = torch.zeros(self.parameters[name].numel(), device=self.device)
        if piece := self._find_piece(name, part):
            piece_slice, piece_values = piece
            flat_tensor[piece_slice] = piece_values
        comm.all_reduce(flat_tensor)
        return flat_tensor.view(self.parameters[name].shape)

    def _set_tensor(self, name: str, part: str, full_tensor: torch.Tensor) -> None:
        """Copy this rank's slice of a whole tensor into the model or optimiser. ``part``: weight or AdamW's moment."""
        full_tensor = full_tensor.to(self.device)
        if self.stage == 3:
            self._set_partitioned_tensor(self.parameters[name], part, full_tensor)
            return
        if piece := self._find_piece(name, part):
            piece_slice, piece_values = piece
            piece_values.copy_(full_tensor.view(-1)[piece_slice])
        if part == checkpoint.WEIGHT:
            self.parameters[name].data.copy_(full_tensor)

    def _set_partitioned_tensor(self, parameter: nn.Parameter, part: str, full_tensor: torch.Tensor) -> None:
        """Do :meth:`_set_tensor` with ZeRO-3. All slices have the same size, so the last one is padded."""
        count = parameter.ds_tensor.ds_numel
        flat = torch.nn.functional.pad(full_tensor.flatten(), (0, count * self.ranks - full_tensor.numel()))
        rank_part = flat.narrow(0, count * self.rank, count)
        if part != checkpoint.WEIGHT:
            utils.safe_set_local_optimizer_state(parameter, rank_part, part)
            return
        utils.safe_set_local_fp32_param(parameter, rank_part)
        with deepspeed.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.data.copy_(full_tensor)

    def _find_piece(self, name: str, part: str) -> tuple[slice, torch.Tensor] | None:
        """Return (slice, values) of this rank's piece of a weight or optimiser state (``part``), None without one."""
        mapping = self.parameters[name]._hp_mapping
        if mapping is None:
            return None
        flat = self.optimiser.single_partition_of_fp32_groups[mapping.param_group_index]
        memory = flat if part == checkpoint.WEIGHT else self.optimiser.optimizer.state[flat][part]
        tensor_fragment, memory_fragment = mapping.lp_fragment_address, mapping.hp_fragment_address
        return slice(tensor_fragment.start, tensor_fragment.start + tensor_fragment.numel), memory.data.narrow(
            0, memory_fragment.start, memory_fragment.numel
        )
