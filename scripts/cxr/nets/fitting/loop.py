"""The training loop, with accumulated gradients, checkpoints, and bit-exact resume after an interruption."""

import importlib
import logging
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from cxr.base.errors import UserError
from cxr.base.jobs import progress
from cxr.base.seeds import stable_hash

log = logging.getLogger("cxr")
NAN_LIMIT = 10  # a training stops after this number of skipped steps (the loss or gradient was not a number)


def make_runner(name: str, *arguments: Any):
    """Return the object ``Runner(*arguments)`` of the module ``name``, which is ``plain`` or ``deepspeed``."""
    return importlib.import_module(f"cxr.nets.fitting.{name}").Runner(*arguments)


@dataclass
class TrainingLog:
    """Progress of a training, in built-in types. It has the numbers of steps taken and skipped, and a row per step."""

    update: int = 0
    skipped: int = 0
    updates: list[dict] = field(default_factory=list)


class TrainingLoop:
    """A training of ``total`` steps. A subclass defines the micro-batches of a step, and the loss.

    ``runner``: result of :func:`make_runner`. ``folder``: folder of checkpoints, or None for none. A checkpoint is
    written every ``checkpoint_every`` steps, and when ``should_stop`` returns True in any process, which ends the
    training in all processes. Results do not depend on ``folder``, ``checkpoint_every`` and ``should_stop``.
    """

    total: int
    log: TrainingLog

    def __init__(self, runner, folder: Path | None, seed: int, checkpoint_every: int, should_stop: Callable[[], bool]):
        self.runner, self.folder, self.seed = runner, folder, seed
        self.checkpoint_every, self.should_stop = checkpoint_every, should_stop
        self.log = TrainingLog()

    def updates(self, first: int) -> Iterator[Sequence[Any]]:
        """Yield this rank's micro-batches of each step, from step ``first`` to the last one. Steps count from 0."""
        raise NotImplementedError

    def losses(self, micro_batch: Any, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (loss, values (K,) whose sums are logged) of one of the ``count`` micro-batches of a step."""
        raise NotImplementedError

    def rate(self, update: int) -> float:
        """Return the learning rate of the step ``update``."""
        raise NotImplementedError

    def row(self, update: int, values: list[float]) -> dict:
        """Return the log row of the step ``update``. ``values``: values of :meth:`losses`, summed over all ranks."""
        raise NotImplementedError

    def after_update(self) -> None:
        """Run after each step, whose row is then the last one in the log. By default, do nothing."""

    def after_resume(self) -> None:
        """Run after a checkpoint is loaded, to restore what :meth:`after_update` uses. By default, do nothing."""

    def run(self) -> TrainingLog:
        """Train to the last step, starting from the last checkpoint if there is one. Return the log."""
        self.log = type(self.log)(**(self.folder and self.runner.load(self.folder)) or {})
        if first := self.log.update:
            log.info("training resumes at step %d of %d", first, self.total)
            self.after_resume()
        for micro_batches in progress(self.updates(first), self.total - first, "updates"):
            row, stop = self._update(self.log.update, micro_batches)
            self.log.updates.append(row)
            self.log.update += 1
            if not stop:
                self.after_update()
            is_due = self.log.update % self.checkpoint_every == 0 or self.log.update == self.total
            if self.folder and (stop or is_due):
                self.runner.save(self.folder, asdict(self.log))
            if stop:
                raise UserError(
                    "training was stopped (its job's time limit is near, or it was cancelled): step "
                    f"{self.log.update} of {self.total} is saved, rerun to resume there"
                )
        return self.log

    def _update(self, update: int, micro_batches: Sequence[Any]) -> tuple[dict, bool]:
        """Take the step ``update``. Return (its row of the log, whether any process was asked to stop)."""
        runner, count = self.runner, len(micro_batches)
        sums = torch.zeros(1, dtype=torch.float64)
        runner.model.train()
        # dropout depends only on the step and the rank, not on earlier random numbers, so that a resume repeats it
        torch.manual_seed(stable_hash(self.seed, "update", update, runner.rank) % 2**63)
        for number, micro_batch in enumerate(micro_batches, 1):
            loss, values = self.losses(micro_batch, count)
            sums = sums + values
            # a non-finite loss must reach the gradient, so that all ranks see that the step is skipped
            runner.backward(loss if math.isfinite(loss.detach()) else loss * math.nan, count, number == count)
        norm, stop = runner.take_step(self.rate(update)), torch.tensor([float(self.should_stop())])
        *values, num_stops = runner.sum(torch.cat([sums, stop])).tolist()
        if skipped := not math.isfinite(norm):
            self.log.skipped += 1
            log.warning("step %d is skipped: its loss or gradient is not a number (%d)", update + 1, self.log.skipped)
            if self.log.skipped >= NAN_LIMIT:
                raise UserError(
                    f"training: {self.log.skipped} steps had a loss or gradient that is not a number: lower "
                    "learning_rate, or set dtype to float32"
                )
        facts = {"update": update + 1, "learning_rate": self.rate(update), "gradient_norm": norm, "skipped": skipped}
        return facts | self.row(update, values), num_stops > 0
