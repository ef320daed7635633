"""The training loop: updates by epoch, validation, checkpoints of the best model, exact resume."""

import logging
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch.utils.tensorboard import SummaryWriter

from cxr.base.atomic import atomic_file
from cxr.base.errors import UserError
from cxr.base.jobs import progress
from cxr.base.seeds import stable_hash
from cxr.ils.rosalia.losses import compute_losses
from cxr.ils.rosalia.model import Rosalia
from cxr.ils.rosalia.sampler import PairSampler
from cxr.ils.rosalia.samples import Batch, Pairs, make_loader, unwrap_errors
from cxr.ils.training.settings import Recipe, TrainingOptions
from cxr.metrics.masks import cumulative_iou, lisa_iou, overlap
from cxr.nets.devices import inference

log = logging.getLogger("cxr")
LOSSES = ("loss", "text", "bce", "dice")
NAN_LIMIT = 10
"""Number of skipped updates (with a loss or gradient that is not a number) at which a training stops."""
STOP = "stop"
LOGGED = (*LOSSES, "positives", "pairs", STOP)
"""Values logged per update: mean losses, numbers of pairs, and number of processes asked to stop."""


@dataclass
class Progress:
    """Progress and log of a training, in builtins only, so that a checkpoint can hold it."""

    update: int = 0
    skipped: int = 0
    best: float = -math.inf
    updates: list[dict] = field(default_factory=list)
    epochs: list[dict] = field(default_factory=list)


@dataclass(frozen=True)
class Scores:
    """gIoU and cIoU of positive pairs, fraction of negative pairs with an empty mask; NaN without such pairs."""

    giou: float
    ciou: float
    n_acc: float

    def value(self, keep: str) -> float:
        """Return the score that selects the best epoch (``training.<engine>.keep``): gIoU, or its mean with N-Acc.

        Without negatives gIoU; without positives NaN.
        """
        return self.giou if keep == "giou" or math.isnan(self.n_acc) else (self.giou + self.n_acc) / 2


def score_pairs(model: Rosalia, pairs: Pairs, batch: int, workers: int, runner, device: torch.device) -> Scores:
    """Score the masks of all pairs without generating text: answers begin with [SEG], so prompts determine masks.

    Each rank of the ``runner`` takes every ranks-th batch. Leaves the model in evaluation mode.
    """
    # sums over positives: IoU, intersection, union, number; over negatives: empty masks, number
    sums = torch.zeros(6, dtype=torch.float64)
    rows = [list(range(first, min(first + batch, len(pairs)))) for first in range(0, len(pairs), batch)]
    model.eval()
    with inference():
        for part in unwrap_errors(make_loader(pairs, rows[runner.rank :: runner.ranks], workers)):
            device_batch = part.to(device, next(model.sam.parameters()).dtype)
            for logits, reference in zip(model.segment(device_batch), device_batch.masks, strict=True):
                sums += _sum_mask_scores(logits > 0, reference[0] > 0)
    iou, intersection, union, positives, empty, negatives = runner.sum(sums).tolist()
    return Scores(
        giou=iou / positives if positives else float("nan"),
        ciou=cumulative_iou(np.array([intersection]), np.array([union])) if positives else float("nan"),
        n_acc=empty / negatives if negatives else float("nan"),
    )


def _sum_mask_scores(mask: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    if not reference.any():
        return torch.tensor([0, 0, 0, 0, float(not mask.any()), 1], dtype=torch.float64)
    both = overlap(mask, reference)
    return torch.tensor([float(lisa_iou(*both)), *both, 1, 0, 0], dtype=torch.float64)


class Fit:
    """One training. ``runner`` computes and applies gradients (:mod:`cxr.nets.fitting.engine`)."""

    def __init__(
        self,
        runner,
        pairs: Pairs,
        validation_pairs: Pairs,
        recipe: Recipe,
        options: TrainingOptions,
        folder: Path,
        *,
        workers: int,
        checkpoint_every: int,
        stop_requested: Callable[[], bool],
    ):
        """``workers``: processes that load pairs; 0: this one. ``checkpoint_every``: updates between checkpoints.

        ``stop_requested`` returns whether this process was asked to stop; then all processes write a checkpoint and
        end. No result depends on these three.
        """
        self.runner, self.pairs, self.validation_pairs = runner, pairs, validation_pairs
        self.recipe, self.options, self.folder = recipe, options, folder
        self.workers, self.checkpoint_every, self.stop_requested = workers, checkpoint_every, stop_requested
        self.draws = PairSampler(
            pairs.lines.positive,
            batch=recipe.micro_batch,
            seed=options.seed,
            balance=recipe.balance,
            equalise=recipe.equalise,
            where=str(pairs.lines.path),
            reword=pairs.wording is not None,
            rank=runner.rank,
            world=runner.ranks,
        )
        # of this rank; the last update of an epoch may have fewer micro-batches
        self.micro_batches, self.per_update = self.draws.count_batches(), recipe.micro_batches_per_step(runner.ranks)
        self.per_epoch = math.ceil(self.micro_batches / self.per_update)
        self.total = self.per_epoch * recipe.epochs

    def run(self, tensorboard: str) -> Progress:
        """Train to the end, from the last checkpoint if there is one.

        ``folder``/best.pt then contains the best weights, or the last ones if no epoch was scored.
        """
        saved_state = self.runner.load(self.folder)
        course = Progress(**saved_state) if saved_state else Progress()
        first = course.update
        if first:
            log.info("training resumes at update %d of %d", first, self.total)
        board = self._board(tensorboard, course) if self.runner.rank == 0 else None
        self._look(course, board)  # a run stopped at an epoch's end leaves this to the next run
        for update, batches in progress(self._updates(first), self.total - first, "updates"):
            noted = self._update(update, batches, course)
            stop = noted.pop(STOP)
            course.updates.append(noted)
            course.update = update + 1
            _plot(board, "update", noted)
            last = course.update == self.total
            if not stop:
                self._look(course, board)
            if stop or course.update % self.checkpoint_every == 0 or last:
                self.runner.save(self.folder, asdict(course))
            if stop:
                raise UserError(
                    "training was told to stop (its job's time limit is near, or somebody ends it): update "
                    f"{course.update} of {self.total} is saved, run it again and it resumes there"
                )
        if board:
            board.close()
        return course

    def _look(self, course: Progress, board: SummaryWriter | None) -> None:
        """Score the validation split if an epoch has just ended and is not yet scored."""
        epoch, remainder = divmod(course.update, self.per_epoch)
        if remainder == 0 and epoch and not any(noted["epoch"] == epoch for noted in course.epochs):
            self._score(epoch, course)
            _plot(board, "validation", course.epochs[-1])

    @staticmethod
    def _board(folder: str, course: Progress) -> SummaryWriter:
        """Rewrite TensorBoard's files from the log, because a killed run may have lost entries."""
        shutil.rmtree(folder, ignore_errors=True)
        board = SummaryWriter(folder)
        for group, notes in (("update", course.updates), ("validation", course.epochs)):
            for noted in notes:
                _plot(board, group, noted)
        return board

    def _updates(self, first: int) -> Iterator[tuple[int, list[Batch]]]:
        """Yield (update, its micro-batches) from update ``first`` to the last one."""
        for epoch in range(first // self.per_epoch, self.recipe.epochs):
            done = max(0, first - epoch * self.per_epoch)
            self.draws.start_at(epoch, done * self.per_update)
            batches = unwrap_errors(
                make_loader(self.pairs, self.draws, self.workers, pin=self.runner.device.type == "cuda")
            )
            waiting: list[Batch] = []
            num_remaining = self.micro_batches - done * self.per_update
            update = epoch * self.per_epoch + done
            for batch in batches:
                waiting.append(batch)
                num_remaining -= 1
                if len(waiting) == self.per_update or num_remaining == 0:
                    yield update, waiting
                    update, waiting = update + 1, []

    def _update(self, update: int, batches: list[Batch], course: Progress) -> dict:
        recipe, runner = self.recipe, self.runner
        runner.model.train()
        # dropout depends only on the update, so it is the same after a resume
        torch.manual_seed(stable_hash(self.options.seed, "update", update, runner.rank) % 2**63)
        rate = learning_rate(update, recipe.learning_rate, recipe.warmup, self.total)
        sums = torch.zeros(len(LOGGED), dtype=torch.float64)
        for number, batch in enumerate(batches, 1):
            device_batch = batch.to(runner.device, next(runner.model.parameters()).dtype)
            losses = runner.forward(partial(_compute_losses, batch=device_batch))
            values = torch.stack([losses[name].detach().double() for name in LOSSES]).cpu() / len(batches)
            positives = sum(bool(mask.any()) for mask in batch.masks)
            sums += torch.cat([values / runner.ranks, torch.tensor([positives, len(batch.pair_ids), 0])])
            # a non-finite loss must reach the gradient, so that all ranks see that the update is skipped
            healthy = bool(values.isfinite().all())
            runner.backward(
                losses["loss"] if healthy else losses["loss"] * math.nan, len(batches), number == len(batches)
            )
        norm = runner.take_step(rate)
        sums[-1] = float(self.stop_requested())
        if not math.isfinite(norm):
            self._skipped(update, course)
        noted = dict(zip(LOGGED, runner.sum(sums).tolist(), strict=True))
        return {
            "update": update + 1,
            "epoch": update // self.per_epoch + 1,
            "learning_rate": rate,
            **{name: noted[name] for name in LOSSES},
            "gradient_norm": norm,
            "positives": int(noted["positives"]),
            "pairs": int(noted["pairs"]),
            "skipped": not math.isfinite(norm),
            STOP: noted[STOP] > 0,
        }

    def _skipped(self, update: int, course: Progress) -> None:
        course.skipped += 1
        log.warning(
            "update %d is skipped: its loss or gradient is not a number (%d so far)", update + 1, course.skipped
        )
        if course.skipped >= NAN_LIMIT:
            raise UserError(
                f"training: {course.skipped} updates had a loss or gradient that is not a number: lower learning_rate, "
                "or set dtype to float32"
            )

    def _score(self, epoch: int, course: Progress) -> None:
        runner = self.runner
        epoch_scores = score_pairs(
            runner.model, self.validation_pairs, self.recipe.micro_batch, self.workers, runner, runner.device
        )
        log.info("epoch %d: validation gIoU %.3f, N-Acc %.3f", epoch, epoch_scores.giou, epoch_scores.n_acc)
        value = epoch_scores.value(self.recipe.keep)
        course.epochs.append({"epoch": epoch, "update": course.update} | asdict(epoch_scores) | {"value": value})
        # without a positive validation pair no epoch has a score: keep the last
        if value > course.best or math.isnan(value):
            course.best = -math.inf if math.isnan(value) else value
            if runner.rank == 0:
                with atomic_file(self.folder / "best.pt") as temporary:
                    torch.save({name: tensor.detach() for name, tensor in runner.parameters.items()}, temporary)


def learning_rate(update: int, largest: float, warmup: int, total: int) -> float:
    """Return the learning rate of an update (from 0): linear warm-up to ``largest``, then linear decay to 0.

    Equals DeepSpeed's WarmupDecayLR with warmup_type linear, which lags by one update: the first two have rate 0.
    """
    done, warmup = max(0, update - 1), max(2, warmup)  # DeepSpeed's warm-up takes at least two updates
    if done < warmup:
        return largest * done / warmup
    return largest * max(0.0, (total - done) / max(1.0, total - warmup))


def _plot(board: SummaryWriter | None, group: str, noted: dict) -> None:
    for name, value in noted.items() if board else ():
        if name not in ("update", "epoch") and math.isfinite(value):
            board.add_scalar(f"{group}/{name}", value, noted["update"])


def _compute_losses(model: Rosalia, batch: Batch) -> dict[str, torch.Tensor]:
    losses = compute_losses(model(batch), batch)
    return losses | {"text": losses["ce"]}
