"""The training loop of a tuning run: shuffled batches, losses, and the log of each step."""

import math
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from cxr.base.conservation import ALL, CountRow, counted_rows
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines
from cxr.nets.fitting.loop import TrainingLog, TrainingLoop
from cxr.segmentation.losses import bce_loss, dice_loss
from cxr.vlm.collate import Batch, Encoded
from cxr.vlm.samples import parse_sample
from cxr.vlm.tokens import IGNORED
from cxr.vlm.tuning.settings import Recipe

BUCKET = 16  # number of batches in a bucket that is sorted by length, to reduce padding

SEG_LOSS = {"text": 1.0, "bce": 5.0, "dice": 1.0}
"""Weights of the losses of a run with a mask head: cross-entropy of the answers (our choice), binary cross-entropy of
the masks, and Dice loss of the non-empty masks (both as for ROSALIA)."""


class TextLoss:
    """Mean cross-entropy of the answers' tokens. Each loss in ``names`` is a mean over its entry in ``units``."""

    names: Sequence[str] = ("text",)
    units: Sequence[str] = ("tokens",)
    weights: Sequence[float] = (1.0,)

    def counts(self, batch: Batch) -> list[int]:
        """Return, for each loss, the number of its ``units`` in a batch."""
        return [count_learned(batch.labels)]

    def sums(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return {loss: sum over a batch}, and "each", the text loss of each sample (N,), which has no gradients."""
        return text_loss(model(**batch.inputs, use_cache=False).logits, batch.labels)


class MaskLoss(TextLoss):
    """Text loss, binary cross-entropy of the mask of each [SEG], and Dice loss of the non-empty masks (ROSALIA)."""

    names, units, weights = tuple(SEG_LOSS), ("tokens", "masks", "positives"), tuple(SEG_LOSS.values())

    def counts(self, batch: Batch) -> list[int]:
        """Return the numbers of answer tokens, masks and non-empty masks."""
        masks = batch.segs.masks
        return [count_learned(batch.labels), len(masks), int(_nonempty(masks).sum())]

    def sums(self, model: torch.nn.Module, batch: Batch) -> dict[str, torch.Tensor]:
        """Return the sums of the three losses, and "each" as in :meth:`TextLoss.sums`."""
        outputs = model(batch.segs, **batch.inputs, use_cache=False)
        masks, targets = outputs["masks"], batch.segs.masks
        nonempty = _nonempty(targets)
        return text_loss(outputs["logits"], batch.labels) | {
            "bce": bce_loss(masks, targets).sum() if len(targets) else masks.sum(),
            "dice": dice_loss(masks[nonempty], targets[nonempty]).sum() if nonempty.any() else masks.sum() * 0.0,
        }


def _nonempty(masks: torch.Tensor) -> torch.Tensor:
    return (masks > 0).flatten(1).any(1)


def count_learned(labels: torch.Tensor) -> int:
    """Return the number of tokens that the loss of a batch covers."""
    return int((labels[:, 1:] != IGNORED).sum())


def text_loss(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return {"text": summed cross-entropy of labelled tokens, "each": the sum of each sample, without gradients}."""
    targets = labels[:, 1:]
    tokens = functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    return {"text": tokens.sum(), "each": tokens.detach().view(targets.shape).sum(1)}


@dataclass
class TuningLog(TrainingLog):
    """Progress and log of a tuning run. ``samples_by_task`` is {task: number of samples in all batches}."""

    samples_by_task: dict[str, int] = field(default_factory=dict)


def epoch_order(lengths: Sequence[int], batch: int, seed: int, epoch: int, drop_last: bool = False) -> list[list[int]]:
    """Return the batches of an epoch, as sample indices. Every sample is in one batch, with samples of similar length.

    The shuffled samples are cut into buckets. Each bucket is sorted by length and cut into batches, and the batches are
    shuffled again. One batch may be smaller. ``drop_last`` drops it, unless it is the only batch.
    """
    draw = random.Random(stable_hash(seed, "order", epoch))
    order = list(range(len(lengths)))
    draw.shuffle(order)
    updates = []
    for first in range(0, len(order), batch * BUCKET):
        bucket = sorted(order[first : first + batch * BUCKET], key=lambda at: (lengths[at], at))
        updates += [bucket[at : at + batch] for at in range(0, len(bucket), batch)]
    draw.shuffle(updates)
    return [part for part in updates if len(part) == batch] or updates if drop_last else updates


class EncodedCache:
    """Cache of encoded samples by index. It keeps the samples that were used last, in at most ``max_bytes`` bytes."""

    def __init__(self, encode: Callable[[int], Encoded], max_bytes: int):
        self.encode, self.max_bytes, self.num_bytes = encode, max_bytes, 0
        self._samples: OrderedDict[int, Encoded] = OrderedDict()

    def __call__(self, at: int) -> Encoded:
        """Return the encoded sample of an index, from the cache or newly encoded."""
        if at in self._samples:
            self._samples.move_to_end(at)
            return self._samples[at]
        encoded = self._samples[at] = self.encode(at)
        self.num_bytes += encoded.nbytes
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._samples.popitem(last=False)[1].nbytes
        return encoded


class TuningLoop(TrainingLoop):
    """Loop of a tuning run. ``encode`` encodes the sample of an index. ``collate`` makes a batch of encoded samples."""

    log: TuningLog

    def __init__(
        self,
        *loop: Any,
        lengths: Sequence[int],
        tasks: Sequence[str],
        encode: Callable[[int], Encoded],
        collate: Callable[[Sequence[Encoded]], Batch],
        objective: TextLoss,
        recipe: Recipe,
    ):
        """``lengths``, ``tasks``: tokens and task per sample. ``loop``: the arguments of :class:`TrainingLoop`."""
        super().__init__(*loop)
        self.log = TuningLog()
        self.lengths, self.encode, self.collate = lengths, encode, collate
        self.objective, self.recipe = objective, recipe
        self.tasks = sorted(set(tasks))
        self.task_of = [self.tasks.index(task) for task in tasks]
        self.num_samples, self.counts = 0, [0.0] * len(objective.names)
        """Number of samples in the current step over all ranks, and the number by which each loss is divided."""
        recipe.micro_batches_per_step(self.runner.ranks)  # raises before anything is computed
        num_full, num_remaining = divmod(len(lengths), recipe.batch)
        self.per_epoch = num_full + (num_remaining > 0 and not (recipe.drop_last and num_full))
        self.total = recipe.updates or self.per_epoch * recipe.epochs

    def updates(self, first: int) -> Iterator[list[tuple[Batch, list[int]]]]:
        """Yield the micro-batches of each step, as (batch, sample indices), from the step ``first``."""
        recipe, (rank, ranks) = self.recipe, (self.runner.rank, self.runner.ranks)
        for epoch in range(first // self.per_epoch, math.ceil(self.total / self.per_epoch)):
            order = epoch_order(self.lengths, recipe.batch, self.seed, epoch, recipe.drop_last)
            start = epoch * self.per_epoch
            for samples in order[max(0, first - start) : self.total - start]:
                # every rank needs the same number, so some may be empty
                count = math.ceil(math.ceil(len(samples) / ranks) / recipe.micro_batch)
                parts = [samples[rank::ranks][recipe.micro_batch * at :][: recipe.micro_batch] for at in range(count)]
                batches = [self._batch(part, samples) for part in parts]
                local_counts = torch.zeros(len(self.objective.names), dtype=torch.float64)
                for batch, part in batches:
                    local_counts += bool(part) * torch.tensor(self.objective.counts(batch))
                self.num_samples, self.counts = len(samples), self.runner.sum(local_counts).tolist()
                yield batches

    def _batch(self, part: list[int], samples: list[int]) -> tuple[Batch, list[int]]:
        """Return (batch, ``part``). An empty part gets a batch of one sample of weight 0, as all ranks must compute."""
        return self.collate([self.encode(at) for at in part or samples[:1]]), part

    def losses(self, micro_batch: tuple[Batch, list[int]], count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (loss of one of ``count`` micro-batches, values to log). These are the mean losses, then for each task
        the numbers of samples and tokens and the text loss."""
        (batch, part), runner, objective = micro_batch, self.runner, self.objective
        device_batch = batch.to(runner.device)
        sums = runner.forward(lambda model: objective.sums(model, device_batch))
        # the mean over the whole step, independent of ranks and micro-batches
        totals = zip(objective.names, self.counts, strict=True)
        means = [sums[name] * (float(bool(part)) / max(total, 1.0)) for name, total in totals]
        loss = sum(weight * mean for weight, mean in zip(objective.weights, means, strict=True))
        of_tasks = torch.zeros(len(self.tasks), 3, dtype=torch.float64)
        if part:
            sample_values = [torch.ones(len(part)), (batch.labels[:, 1:] != IGNORED).sum(1).float(), sums["each"].cpu()]
            tasks = torch.tensor([self.task_of[at] for at in part])
            of_tasks.index_add_(0, tasks, torch.stack(sample_values, 1).double())
        logged_means = torch.tensor([float(mean.detach()) for mean in means], dtype=torch.float64)
        return loss * runner.ranks * count, torch.cat([logged_means, of_tasks.flatten()])

    def rate(self, update: int) -> float:
        return self.recipe.learning_rate * self.recipe.rate(update, self.total)

    def row(self, update: int, values: list[float]) -> dict:
        """Return the log's row for a step, and add the samples of the step to ``samples_by_task``."""
        objective = self.objective
        losses, task_values = values[: len(objective.names)], values[len(objective.names) :]
        task_rows = list(zip(self.tasks, task_values[::3], task_values[1::3], task_values[2::3], strict=True))
        for task, samples, *_ in task_rows:
            self.log.samples_by_task[task] = self.log.samples_by_task.get(task, 0) + int(samples)
        means = ((task, samples, loss / max(tokens, 1)) for task, samples, tokens, loss in task_rows if samples)
        task_texts = [f"{task} {int(samples)} {mean:.4f}" for task, samples, mean in means]
        loss_values = zip(objective.names, losses, self.counts, strict=True)
        return {
            "epoch": (update + 1) / self.per_epoch,
            "loss": sum(weight * value for weight, value in zip(objective.weights, losses, strict=True)),
            **{name: value if count else None for name, value, count in loss_values},
            **{name: int(count) for name, count in zip(objective.units, self.counts, strict=True)},
            "samples": self.num_samples,
            "by_task": "; ".join(task_texts),
        }


STAGE = "vlm_tuning"


def count_lines(path: str, tasks: Sequence[str], learned: int, excluded_rows: Sequence[Mapping]) -> list[CountRow]:
    """Return how many lines of a file are ``learned``, how many are of tasks not in ``tasks``, and how many are
    excluded for each reason. Raises AssertionError if the sum is not the number of lines."""
    with open(path, "rb") as file:
        number = sum(1 for _ in file)
    num_other_tasks = sum(parse_sample(line).task not in tasks for line in read_lines(path)) if tasks else 0
    reason_counts = Counter(row["reason"] for row in excluded_rows)
    ends = {"learned": learned, "other_task": num_other_tasks} | dict(sorted(reason_counts.items()))
    return counted_rows(STAGE, "lines", number, ends)


def count_pass(size: int, learned: int, order: Sequence[int]) -> list[CountRow]:
    """Return the numbers of different samples (``learned``) and of repeated ones in a pass. ``order`` has its indices.
    Raises AssertionError if the sum is not ``size``, the number of samples in the pass."""
    return counted_rows(STAGE, "pass", size, {"learned": learned, "again": len(order) - len(set(order))})


def count_passes(fit: TuningLoop, course: TuningLog) -> list[CountRow]:
    """Return how many samples of all passes of the loop ``fit`` were used or not used, and those used by task.
    ``course`` is the log of the steps. Raises AssertionError if a sample was lost."""
    recipe, size = fit.recipe, len(fit.lengths)
    passes = math.ceil(recipe.updates / fit.per_epoch) if recipe.updates else recipe.epochs
    smaller = size % recipe.batch if recipe.drop_last and size >= recipe.batch else 0
    last = epoch_order(fit.lengths, recipe.batch, fit.seed, passes - 1, recipe.drop_last)
    num_behind = sum(map(len, last[fit.total - (passes - 1) * fit.per_epoch :]))
    ends = {"seen": sum(course.samples_by_task.values()), "drop_last": passes * smaller, "not_reached": num_behind}
    return [
        ("passes", ALL, passes),
        *counted_rows(STAGE, "samples", passes * size, ends),
        *counted_rows(STAGE, "updates", sum(row["samples"] for row in course.updates), course.samples_by_task),
    ]
