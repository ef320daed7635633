"""Training and calibration of the detector (PyTorch)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from cxr.base.unfinished_work import prepare_folder
from cxr.detection.net import Detector, assign_targets, detection_loss, image_label_loss
from cxr.nets.fitting.loop import TrainingLog, TrainingLoop
from cxr.nets.fitting.plain import Runner


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a training."""

    updates: int  # number of steps
    rate: float  # maximum learning rate
    decay: float  # weight decay
    warmup: float  # fraction of the steps after which the learning rate has its maximum
    clip: float  # maximum norm of the gradient
    memory: float  # decay of the running mean of the weights, per step
    importance: tuple[float, ...]  # weight of a positive cell in the loss, per class
    image_label_weight: float = 0.5  # weight of the loss of image-level labels
    bfloat16: bool = False  # whether convolutions use bfloat16, not float32

    @property
    def dtype(self) -> str:
        """Number type of the convolutions."""
        return "bfloat16" if self.bfloat16 else "float32"


class Batch(NamedTuple):
    """Images of a training step, each with its boxes and labels."""

    images: list[np.ndarray]  # float32 (size, size) in 0..1
    boxes: list[list[tuple]]  # boxes of each image, (class index, x1, y1, x2, y2) in cells
    labelled_classes: list[list[int]]  # indices of the classes for which each image was labelled
    image_labels: Sequence[dict[int, bool]] = ()  # for each image {class index: whether it is present}, without boxes


MEAN_WARMUP = 20  # after n steps, the newest weights count at least MEAN_WARMUP / (n + MEAN_WARMUP) in the mean


def copy_net(net: Detector) -> Detector:
    """Return a copy of a net with the memory layout for training."""
    copy = Detector(net.grid, net.widths).to(memory_format=torch.channels_last)
    copy.load_state_dict(net.state_dict())
    return copy


class Checkpoint(NamedTuple):
    """Where and how often an unfinished training is saved, so that a rerun of the job resumes it."""

    folder: Path
    every: int  # number of steps between two checkpoints
    identity: str  # digest of the training's inputs; checkpoints with another digest are deleted


class Monitor(NamedTuple):
    """Steps of a training after which the net is scored, and the function that scores it."""

    at: frozenset[int]  # steps after which the net is scored, with the running mean of its weights
    score: Callable[[Detector], float]
    identity: str  # digest of all inputs of the score except the net
    scores: dict[int, float]  # receives {step: score}


@dataclass
class DetectorLog(TrainingLog):
    """Progress and log of a training."""

    random: dict = field(default_factory=dict)  # state of the random generator of the batches
    scores: dict[int, float] = field(default_factory=dict)  # {step: score}


class DetectorTraining(TrainingLoop):
    """The training of a detector; see :func:`train_net`."""

    log: DetectorLog

    def __init__(
        self,
        net: Detector,
        draw: Callable[[np.random.Generator, int], Batch],
        recipe: Recipe,
        seed: int,
        on_step: Callable[[int, float], None],
        checkpoint: Checkpoint | None,
        watch: Monitor | None,
    ):
        self.net, self.draw, self.recipe, self.on_step, self.watch = net, draw, recipe, on_step, watch
        self.random, self.total = np.random.default_rng(seed), recipe.updates
        optimiser = torch.optim.AdamW(net.parameters(), recipe.rate, weight_decay=recipe.decay)
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, recipe.rate, total_steps=recipe.updates, pct_start=recipe.warmup
        )
        self.mean = {name: value.detach().clone() for name, value in net.state_dict().items()}
        saved = dict(net.named_parameters()) | dict(net.named_buffers())
        saved |= {f"mean.{name}": value for name, value in self.mean.items()}
        runner = Runner(net, saved, optimiser, recipe, torch.device("cpu"), timedelta())
        folder, every = (checkpoint.folder, checkpoint.every) if checkpoint else (None, 1)
        super().__init__(runner, folder, seed, every, lambda: False)
        self.log = DetectorLog()

    def updates(self, first: int) -> Iterator[list[Batch]]:
        """Yield a list with the batch of each step, from step ``first`` on."""
        for update in range(first, self.total):
            yield [self.draw(self.random, update)]

    def losses(self, micro_batch: Batch, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a batch, and its two parts, float64 (2,): the loss of classes and that of boxes."""
        image = torch.from_numpy(np.stack(micro_batch.images))[:, None].to(memory_format=torch.channels_last)
        target = assign_targets(micro_batch.boxes, micro_batch.labelled_classes, self.net.grid)
        logit, distance = (part.float() for part in self.runner.forward(lambda net: net(image)))
        classes, sides = detection_loss(logit, distance, target, self.net.grid, self.recipe.importance)
        loss = classes + sides
        if any(micro_batch.image_labels):
            film = self.recipe.image_label_weight * image_label_loss(logit, micro_batch.image_labels)
            loss, classes = loss + film, classes + film
        return loss, torch.stack([classes, sides]).detach().double()

    def rate(self, update: int) -> float:
        """Return the learning rate of a step."""
        return self.schedule.optimizer.param_groups[0]["lr"]

    def row(self, update: int, values: list[float]) -> dict:
        """Return the row of the log for a step. ``values``: the loss of classes and that of boxes."""
        return dict(zip(("classes", "sides"), values, strict=True))

    def after_update(self) -> None:
        """Update the learning rate and the running mean of the weights; score the net at the steps of ``watch``."""
        self.schedule.step()
        number = self.log.update
        share = min(self.recipe.memory, (number - 1) / (number - 1 + MEAN_WARMUP))
        for name, now in self.net.state_dict().items():
            mean = self.mean[name]
            mean.copy_(mean * share + now * (1 - share) if now.is_floating_point() else now)
        self.log.random = self.random.bit_generator.state
        self.on_step(number, self.log.updates[-1]["classes"] + self.log.updates[-1]["sides"])
        if self.watch and number in self.watch.at:
            self.log.scores[number] = self.watch.score(self.averaged_net())

    def after_resume(self) -> None:
        """Restore the learning-rate schedule and the random generator of the batches."""
        self.schedule.last_epoch, self.random.bit_generator.state = self.log.update, self.log.random

    def averaged_net(self) -> Detector:
        """Return a net with the running mean of the weights, ready to predict."""
        averaged = copy_net(self.net)
        averaged.load_state_dict(self.mean)
        return averaged.eval()


def train_net(
    net: Detector,
    draw: Callable[[np.random.Generator, int], Batch],
    recipe: Recipe,
    seed: int,
    on_step: Callable[[int, float], None] = lambda update, value: None,
    checkpoint: Checkpoint | None = None,
    losses: list[tuple[float, float]] | None = None,
    watch: Monitor | None = None,
) -> Detector:
    """Train ``net`` on batches from ``draw(generator, number of finished steps)``. Return a net with the running mean
    of the weights. On a CPU with one thread, the same seed gives the same bytes, even if a job resumed ``checkpoint``.
    ``on_step(step, loss)`` is called after each step. ``losses`` receives (class loss, box loss) of all steps.
    ``watch`` says after which steps the net is scored, and receives the scores."""
    if checkpoint:
        prepare_folder(checkpoint.folder, checkpoint.identity)
    training = DetectorTraining(net, draw, recipe, seed, on_step, checkpoint, watch)
    log = training.run()
    if losses is not None:
        losses += [(row["classes"], row["sides"]) for row in log.updates]
    if watch:
        watch.scores.update(training.log.scores)
    return training.averaged_net()


def fit_platt(confidence: np.ndarray, hit: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Return the (slope, offset) for which sigmoid(slope * logit(confidence) + offset) is the fraction of hits. A weak
    prior draws them to (1, 0). ``hit`` (N,): whether each box hits; ``weights`` (N,): 1 for each box by default."""
    logit = np.log(confidence / (1 - confidence))
    x, y = torch.from_numpy(logit), torch.from_numpy(hit.astype(np.float64))
    each = torch.from_numpy(np.ones(len(hit)) if weights is None else weights)
    line = torch.tensor([1.0, 0.0], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([line], max_iter=200, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        optimiser.zero_grad()
        value = nn.functional.binary_cross_entropy_with_logits(x * line[0] + line[1], y, each, reduction="sum")
        value = value + 2.0 * (line[0] - 1) ** 2 + 0.1 * line[1] ** 2
        value.backward()
        return value

    optimiser.step(step)
    return tuple(float(v) for v in line.detach())
