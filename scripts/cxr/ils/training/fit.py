"""The training loop of ROSALIA with its losses and validation scores. It keeps the weights of the best epoch."""

import logging
import math
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import torch
from torch.nn import functional
from torch.utils.tensorboard import SummaryWriter

from cxr.base.atomic import atomic_file
from cxr.ils.rosalia.model import Output, Rosalia
from cxr.ils.rosalia.sampler import PairSampler
from cxr.ils.rosalia.samples import Batch, Pairs, make_loader, unwrap_errors
from cxr.ils.training.settings import Recipe
from cxr.metrics.masks import CIOU_EPSILON, lisa_iou, overlap
from cxr.nets.devices import inference
from cxr.nets.fitting.loop import TrainingLog, TrainingLoop
from cxr.segmentation.losses import LossWeights, bce_loss, dice_loss, mean_loss

log = logging.getLogger("cxr")
LOSSES = {"loss": "loss", "text": "ce", "bce": "bce", "dice": "dice"}
"""{column of the log: key of the loss in the result of :func:`compute_losses`}."""

WEIGHTS = LossWeights(text=0.5, bce=5.0, dice=1.0)  # weights of the losses (paper)


def compute_losses(
    output: Output, batch: Batch, weights: LossWeights = WEIGHTS, dice_on: str = "positives"
) -> dict[str, torch.Tensor]:
    """Return the weighted losses of a batch by name: loss (their sum), ce (text), bce and dice (masks).

    ``dice_on``: "all" computes the Dice loss on all masks (LISA), and "positives" only on samples with a lesion
    (ROSALIA), because the Dice loss of an empty mask is always nearly 1. Raises ValueError if a sample's masks and
    predictions differ in number or size.
    """
    # an answer without [SEG] predicts no mask and needs none
    pairs = zip(batch.masks, output.masks, strict=True)
    masks = [(mask if len(mask_logits) else mask[:0]).to(output.low_res.device) for mask, mask_logits in pairs]
    for name, mask, mask_logits in zip(batch.pair_ids, masks, output.masks, strict=True):
        if mask.shape != mask_logits.shape:
            raise ValueError(f"{name}: masks of shape {tuple(mask.shape)}, but predictions {tuple(mask_logits.shape)}")
    in_dice = [dice_on == "all" or has_lesion for has_lesion in torch.stack([mask.any() for mask in masks]).tolist()]
    text = functional.cross_entropy(output.text_logits.float(), output.text_labels, reduction="sum")
    parts = {
        "ce": weights.text * (text / max(1, len(output.text_labels))),  # the mean over tokens; 0 without an answer
        "bce": weights.bce * mean_loss(bce_loss, output.masks, masks, [True] * len(masks)),
        "dice": weights.dice * mean_loss(dice_loss, output.masks, masks, in_dice),
    }
    return {"loss": sum(parts.values())} | parts


@dataclass
class Progress(TrainingLog):
    """Progress of a training, with the rows of its tables. A checkpoint stores it."""

    best: float = -math.inf  # Highest validation score
    epochs: list[dict] = field(default_factory=list)  # Log rows of the scored epochs


@dataclass(frozen=True)
class Scores:
    """Validation scores from 0 to 1. A score is NaN if there are no pairs for it."""

    giou: float  # Mean IoU of the positive pairs
    ciou: float  # Sum of intersections divided by sum of unions of the positive pairs
    n_acc: float  # Fraction of negative pairs with an empty mask

    def value(self, keep: str) -> float:
        """Return gIoU if ``keep`` is "giou" or there are no negatives, else the mean of gIoU and N-Acc."""
        return self.giou if keep == "giou" or math.isnan(self.n_acc) else (self.giou + self.n_acc) / 2


def score_pairs(model: Rosalia, pairs: Pairs, batch: int, workers: int, runner, device: torch.device) -> Scores:
    """Return the scores of all pairs' masks, predicted without answers. Each process of ``runner`` predicts a part."""
    # sums over positives: IoU, intersection, union, number; over negatives: empty masks, number
    sums = torch.zeros(6, dtype=torch.float64)
    rows = [list(range(first, min(first + batch, len(pairs)))) for first in range(0, len(pairs), batch)]
    model.eval()
    with inference():
        for part in unwrap_errors(make_loader(pairs, rows[runner.rank :: runner.ranks], workers)):
            device_batch = part.to(device, next(model.sam.parameters()).dtype)
            for logits, reference in zip(model.segment(device_batch), device_batch.masks, strict=True):
                mask, lesion = logits > 0, reference[0] > 0
                if lesion.any():
                    both = overlap(mask, lesion)
                    sums[:4] += torch.tensor([float(lisa_iou(*both)), *both, 1], dtype=torch.float64)
                else:
                    sums[4:] += torch.tensor([float(not mask.any()), 1], dtype=torch.float64)
    iou, intersection, union, positives, empty, negatives = runner.sum(sums).tolist()
    return Scores(
        giou=iou / positives if positives else float("nan"),
        ciou=intersection / (union + CIOU_EPSILON) if positives else float("nan"),
        n_acc=empty / negatives if negatives else float("nan"),
    )


class Fit(TrainingLoop):
    """The training of a model on pairs. After each epoch the model is scored on the validation pairs."""

    log: Progress
    board: SummaryWriter | None = None

    def __init__(
        self, *loop: Any, pairs: Pairs, validation_pairs: Pairs, recipe: Recipe, workers: int, tensorboard: str
    ):
        """``loop``: arguments of :class:`TrainingLoop`; ``workers``: number of extra processes that load pairs."""
        super().__init__(*loop)
        self.pairs, self.validation_pairs, self.recipe = pairs, validation_pairs, recipe
        self.workers, self.tensorboard = workers, tensorboard
        self.log = Progress()
        runner = self.runner
        self.draws = PairSampler(
            pairs.lines.positive,
            batch=recipe.micro_batch,
            seed=self.seed,
            balance=recipe.balance,
            equalise=recipe.equalise,
            where=str(pairs.lines.path),
            reword=pairs.wording is not None,
            rank=runner.rank,
            world=runner.ranks,
        )
        # numbers of this process; the last step of an epoch may have fewer micro-batches
        self.micro_batches, self.per_update = self.draws.count_batches(), recipe.micro_batches_per_step(runner.ranks)
        self.per_epoch = math.ceil(self.micro_batches / self.per_update)
        self.total = self.per_epoch * recipe.epochs

    def updates(self, first: int) -> Iterator[list[Batch]]:
        """Yield the list of micro-batches of each step, from step number ``first`` (from 0) to the last."""
        for epoch in range(first // self.per_epoch, self.recipe.epochs):
            start = max(0, first - epoch * self.per_epoch) * self.per_update
            self.draws.start_at(epoch, start)
            pin = self.runner.device.type == "cuda"
            batches = unwrap_errors(make_loader(self.pairs, self.draws, self.workers, pin=pin))
            for _ in range(start, self.micro_batches, self.per_update):
                yield list(islice(batches, self.per_update))

    def losses(self, micro_batch: Batch, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (loss, values to sum for the log) of one of the ``count`` micro-batches of a step."""
        runner = self.runner
        batch = micro_batch.to(runner.device, next(runner.model.parameters()).dtype)
        losses = runner.forward(lambda model: compute_losses(model(batch), batch))
        values = torch.stack([losses[name].detach().double() for name in LOSSES.values()]).cpu() / count
        positives = sum(bool(mask.any()) for mask in micro_batch.masks)
        return losses["loss"], torch.cat([values / runner.ranks, torch.tensor([positives, len(batch.pair_ids)])])

    def rate(self, update: int) -> float:
        """Return the learning rate of the step ``update``."""
        return learning_rate(update, self.recipe.learning_rate, self.recipe.warmup, self.total)

    def row(self, update: int, values: list[float]) -> dict:
        """Return the log row of a step. ``values``: sums of the values that :meth:`losses` returned for the step."""
        *losses, positives, pairs = values
        numbers = {"epoch": update // self.per_epoch + 1, "positives": int(positives), "pairs": int(pairs)}
        return numbers | dict(zip(LOSSES, losses, strict=True))

    def after_update(self) -> None:
        """Score the model if an epoch has ended and has no score yet, and write new rows to TensorBoard."""
        progress, new_rows = self.log, self.log.updates[-1:]
        epoch, remainder = divmod(progress.update, self.per_epoch)
        if remainder == 0 and not any(row["epoch"] == epoch for row in progress.epochs):
            self._score(epoch)
            new_rows = [*new_rows, progress.epochs[-1]]
        if self.runner.rank:
            return
        if self.board is None:  # TensorBoard's files are rewritten, because a killed run may have lost entries
            shutil.rmtree(self.tensorboard, ignore_errors=True)
            self.board, new_rows = SummaryWriter(self.tensorboard), [*progress.updates, *progress.epochs]
        for row in new_rows:
            group = "update" if "loss" in row else "validation"
            for name, value in row.items():
                if name not in ("update", "epoch") and math.isfinite(value):
                    self.board.add_scalar(f"{group}/{name}", value, row["update"])

    after_resume = after_update  # a training that was stopped at the end of an epoch did not score that epoch

    def _score(self, epoch: int) -> None:
        runner, progress = self.runner, self.log
        scores = score_pairs(
            runner.model, self.validation_pairs, self.recipe.micro_batch, self.workers, runner, runner.device
        )
        log.info("epoch %d: validation gIoU %.3f, N-Acc %.3f", epoch, scores.giou, scores.n_acc)
        value = scores.value(self.recipe.keep)
        progress.epochs.append({"epoch": epoch, "update": progress.update} | asdict(scores) | {"value": value})
        # without positive validation pairs no epoch has a score, and the last epoch is kept
        if value > progress.best or math.isnan(value):
            progress.best = -math.inf if math.isnan(value) else value
            if runner.rank == 0:
                with atomic_file(self.folder / "best.pt") as temporary:
                    torch.save({name: tensor.detach() for name, tensor in runner.parameters.items()}, temporary)


def learning_rate(update: int, largest: float, warmup: int, total: int) -> float:
    """Return the learning rate of an update, counted from 0: linear warm-up to ``largest``, then linear decay to 0.

    The rates equal those of DeepSpeed's WarmupDecayLR (linear), which lags by one update, so the first two are 0.
    """
    done, warmup = max(0, update - 1), max(2, warmup)  # DeepSpeed's warm-up takes at least two updates
    if done < warmup:
        return largest * done / warmup
    return largest * max(0.0, (total - done) / max(1.0, total - warmup))
