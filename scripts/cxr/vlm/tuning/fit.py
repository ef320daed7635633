"""The training loop: shuffled batches, checkpoints, bit-exact resume."""

import logging
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from cxr.base.errors import UserError
from cxr.base.jobs import progress
from cxr.base.seeds import stable_hash
from cxr.vlm.collate import Batch, Encoded
from cxr.vlm.tuning.objective import TextLoss, count_learned_per_sample
from cxr.vlm.tuning.settings import Recipe

log = logging.getLogger("cxr")
BUCKET = 16
"""Number of batches in a bucket that is sorted by length, to reduce padding."""
NAN_LIMIT = 10
"""Number of steps with a loss or gradient that is not a number, at which a tuning stops."""


@dataclass
class TrainingLog:
    """Progress and log of a tuning, of builtins only, so that it can be saved. seen: {task: samples in batches}."""

    update: int = 0
    skipped: int = 0
    updates: list[dict] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)


def epoch_order(lengths: Sequence[int], batch: int, seed: int, epoch: int, drop_last: bool = False) -> list[list[int]]:
    """Return the batches of sample indices of an epoch: every sample once, samples of similar length together.

    A seeded shuffle is cut into buckets; each is sorted by length and cut into batches, which are shuffled again. One
    batch may be smaller; ``drop_last`` drops it unless it is the only one.
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
    """Returns encoded samples by index; the most recently used ones are cached in at most ``max_bytes``."""

    def __init__(self, encode: Callable[[int], Encoded], max_bytes: int):
        self.encode, self.max_bytes, self.num_bytes = encode, max_bytes, 0
        self._samples: OrderedDict[int, Encoded] = OrderedDict()

    def __call__(self, at: int) -> Encoded:
        """Return a sample, from the cache or newly encoded."""
        if at in self._samples:
            self._samples.move_to_end(at)
            return self._samples[at]
        encoded = self._samples[at] = self.encode(at)
        self.num_bytes += encoded.nbytes
        while self.num_bytes > self.max_bytes:
            self.num_bytes -= self._samples.popitem(last=False)[1].nbytes
        return encoded


class TuningLoop:
    """The loop. ``encode``: returns the conversation of a sample index; ``collate``: makes a batch; ``lengths``,
    ``tasks``: of the samples.
    """

    def __init__(
        self,
        runner,
        lengths: Sequence[int],
        encode: Callable[[int], Encoded],
        collate: Callable[[Sequence[Encoded]], Batch],
        objective: TextLoss,
        recipe: Recipe,
        *,
        tasks: Sequence[str],
        folder: Path,
        seed: int,
        checkpoint_every: int,
        should_stop: Callable[[], bool] = lambda: False,
    ):
        self.runner, self.lengths, self.encode, self.collate = runner, lengths, encode, collate
        self.kinds = sorted(set(tasks))
        self.kind_of = [self.kinds.index(task) for task in tasks]
        self.objective = objective
        self.recipe, self.folder, self.seed = recipe, folder, seed
        self.checkpoint_every, self.should_stop = checkpoint_every, should_stop
        recipe.micro_batches_per_step(runner.ranks)  # raises before anything is computed
        num_full, num_remaining = divmod(len(lengths), recipe.batch)
        per_epoch = num_full + (num_remaining > 0 and not (recipe.drop_last and num_full))
        self.per_epoch, self.total = per_epoch, recipe.updates or per_epoch * recipe.epochs

    def run(self) -> TrainingLog:
        """Train to the end, from the last checkpoint if there is one."""
        saved_course = self.runner.load(self.folder)
        course = TrainingLog(**saved_course) if saved_course else TrainingLog()
        if course.update:
            log.info("tuning resumes at update %d of %d", course.update, self.total)
        for update, samples in progress(self._updates(course.update), self.total - course.update, "updates"):
            noted, stop = self._update(update, samples, course)
            course.updates.append(noted)
            course.update = update + 1
            if stop or course.update % self.checkpoint_every == 0 or course.update == self.total:
                self.runner.save(self.folder, asdict(course))
            if stop:
                raise UserError(
                    "tuning was stopped (its job's time limit is near, or it was cancelled): step "
                    f"{course.update} of {self.total} is saved, rerun to resume there"
                )
        return course

    def _updates(self, first: int) -> Iterator[tuple[int, list[int]]]:
        for epoch in range(first // self.per_epoch, math.ceil(self.total / self.per_epoch)):
            order = epoch_order(self.lengths, self.recipe.batch, self.seed, epoch, self.recipe.drop_last)
            for number, samples in enumerate(order):
                update = epoch * self.per_epoch + number
                if first <= update < self.total:
                    yield update, samples

    def _update(self, update: int, samples: list[int], course: TrainingLog) -> tuple[dict, bool]:
        recipe, runner, objective = self.recipe, self.runner, self.objective
        runner.model.train()
        # dropout depends only on the step, not on earlier draws, so it is the same after a resume
        torch.manual_seed(stable_hash(self.seed, "update", update, runner.rank) % 2**63)
        factor = recipe.rate(update, self.total)
        rank_samples = samples[runner.rank :: runner.ranks]
        micro = [rank_samples[at : at + recipe.micro_batch] for at in range(0, len(rank_samples), recipe.micro_batch)]
        count = math.ceil(math.ceil(len(samples) / runner.ranks) / recipe.micro_batch)
        micro += [[] for _ in range(count - len(micro))]  # every rank needs the same number
        batches = [self._batch(part, samples) for part in micro]
        local_counts = torch.zeros(len(objective.names), dtype=torch.float64)
        for batch, part in batches:
            local_counts += bool(part) * torch.tensor(objective.counts(batch))
        counts = runner.sum(local_counts).tolist()
        means, of_kinds = self._accumulate(batches, counts)
        sums = torch.cat([means, of_kinds.flatten(), torch.zeros(1, dtype=torch.float64)])
        norm = runner.take_step(recipe.learning_rate * factor)
        sums[-1] = float(self.should_stop())
        *values, stop_votes = runner.sum(sums).tolist()
        values, of_kinds = values[: len(counts)], values[len(counts) :]
        if not math.isfinite(norm):
            self._record_skip(update, course)
        for kind, number in zip(self.kinds, of_kinds[::3], strict=True):
            course.seen[kind] = course.seen.get(kind, 0) + int(number)
        loss_terms = zip(objective.names, values, counts, strict=True)
        noted = {
            "update": update + 1,
            "epoch": (update + 1) / self.per_epoch,
            "learning_rate": recipe.learning_rate * factor,
            "loss": sum(weight * value for weight, value in zip(objective.weights, values, strict=True)),
            **{name: value if count else None for name, value, count in loss_terms},
            **{name: int(count) for name, count in zip(objective.units, counts, strict=True)},
            "samples": len(samples),
            "by_task": self._summarize_tasks(of_kinds),
            "gradient_norm": norm,
            "skipped": not math.isfinite(norm),
        }
        return noted, stop_votes > 0

    def _accumulate(
        self, batches: list[tuple[Batch, list[int]]], counts: list[float]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Accumulate the gradients of a step. Return this rank's part of the mean losses, and for each task, (T, 3),
        the samples, the answers' tokens and the summed text loss.
        """
        objective, runner = self.objective, self.runner
        sums = torch.zeros(len(counts), dtype=torch.float64)
        of_kinds = torch.zeros(len(self.kinds), 3, dtype=torch.float64)
        for number, (batch, part) in enumerate(batches, 1):
            real = bool(part)
            device_batch = batch.to(runner.device)
            loss_sums = runner.forward(lambda model, device_batch=device_batch: objective.sums(model, device_batch))
            # the mean over the whole step, independent of ranks and micro-batches
            name_counts = zip(objective.names, counts, strict=True)
            means = [loss_sums[name] * (float(real) / max(count, 1.0)) for name, count in name_counts]
            loss = sum(weight * mean for weight, mean in zip(objective.weights, means, strict=True))
            sums += torch.tensor([float(mean.detach()) for mean in means])
            if real:
                sample_values = torch.stack(
                    [torch.ones(len(part)), count_learned_per_sample(batch.labels).float(), loss_sums["each"].cpu()], 1
                )
                of_kinds.index_add_(0, torch.tensor([self.kind_of[at] for at in part]), sample_values.double())
            healthy = math.isfinite(float(loss.detach()))
            loss = loss * runner.ranks * len(batches)
            runner.backward(loss if healthy else loss * math.nan, len(batches), number == len(batches))
        return sums, of_kinds

    def _summarize_tasks(self, of_kinds: Sequence[float]) -> str:
        """Return the log text about each task with samples in a step."""
        rows = zip(self.kinds, of_kinds[::3], of_kinds[1::3], of_kinds[2::3], strict=True)
        return "; ".join(
            f"{kind} {int(samples)} {loss / max(tokens, 1):.4f}" for kind, samples, tokens, loss in rows if samples
        )

    def _batch(self, part: list[int], samples: list[int]) -> tuple[Batch, list[int]]:
        """Return a micro-batch with its sample indices. An empty one gets a sample of weight 0, because all ranks must
        compute equally often.
        """
        return self.collate([self.encode(at) for at in part or samples[:1]]), part

    def _record_skip(self, update: int, course: TrainingLog) -> None:
        course.skipped += 1
        log.warning("step %d is skipped: its loss or gradient is not a number (%d so far)", update + 1, course.skipped)
        if course.skipped >= NAN_LIMIT:
            raise UserError(
                f"tuning: {course.skipped} steps had a loss or gradient that is not a number: lower learning_rate, or "
                "set dtype to float32"
            )
