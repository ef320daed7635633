"""The detector's training loop and its calibration (PyTorch)."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from cxr.base.atomic import atomic_file
from cxr.base.errors import refuse_machine_fault
from cxr.detection.net import Detector, assign_targets, detection_loss, image_label_loss


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of a training.

    updates: number of steps; rate: highest learning rate, reached after the fraction ``warmup`` of the steps; decay:
    weight decay; clip: largest gradient norm; memory: decay per step of the running mean of the weights (smaller in the
    first steps); importance: weight of a positive cell of each class; image_label_weight: weight of the loss of
    image-level labels; bfloat16: whether convolutions run in it, nearly twice as fast.
    """

    updates: int
    rate: float
    decay: float
    warmup: float
    clip: float
    memory: float
    importance: tuple[float, ...]
    image_label_weight: float = 0.5
    bfloat16: bool = False


class Batch(NamedTuple):
    """Images float32 (size, size) in 0..1; per image its boxes, (class index, x1, y1, x2, y2) in cells.

    ``labelled_classes``: class indices that the image's labels cover; others do not enter its loss.
    ``image_labels``: labels of the whole image, without a box: {class index: whether it is present}.
    """

    images: list[np.ndarray]
    boxes: list[list[tuple]]
    labelled_classes: list[list[int]]
    image_labels: Sequence[dict[int, bool]] = ()


MEAN_WARMUP = 20
"""Warm-up of the running mean: after n steps the newest weights count at least MEAN_WARMUP / (n + MEAN_WARMUP)."""


def new_net(like: Detector) -> Detector:
    """Return a net of the same kind with random weights, in the memory layout for training."""
    return Detector(like.grid, like.widths).to(memory_format=torch.channels_last)


def copy_net(net: Detector) -> Detector:
    """Return a copy to train on."""
    copy = new_net(net)
    copy.load_state_dict(net.state_dict())
    return copy


class Checkpoint(NamedTuple):
    """Checkpoint file of an unfinished training, steps between two writes, and a digest of the training's inputs.

    A file with another ``identity`` is overwritten, not resumed.
    """

    path: Path
    every: int
    identity: str

    def read(self) -> dict | None:
        """Return the state of an unfinished training, None without one of this identity."""
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True) if self.path.is_file() else {}
        except (OSError, RuntimeError, ValueError, EOFError, pickle.UnpicklingError) as error:
            refuse_machine_fault(self.path, error)
            return None
        return state if state.get("identity") == self.identity else None

    def write(self, state: dict) -> None:
        """Write a state atomically."""
        with atomic_file(self.path) as temporary:
            torch.save(state | {"identity": self.identity}, temporary)


class Monitor(NamedTuple):
    """Scoring during a training.

    at: steps after which it is scored; score: scores a net with the running mean of the weights; identity: digest of
    what the scores depend on besides the net; scores: receives {step: score}.
    """

    at: frozenset[int]
    score: Callable[[Detector], float]
    identity: str
    scores: dict[int, float]


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
    """Train a net on batches from ``draw``; return a net with the running mean of the weights.

    ``draw`` receives the random generator and the number of finished steps; ``on_step`` receives number and loss of
    each step. On a CPU with one thread the same seed gives the same bytes, also after resuming from ``checkpoint``.
    ``losses`` receives the class and box loss of every step, steps before an interruption included; ``watch`` scores
    the net without changing it.
    """
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    net.train()
    optimiser = torch.optim.AdamW(net.parameters(), recipe.rate, weight_decay=recipe.decay)
    plan = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, recipe.rate, total_steps=recipe.updates, pct_start=recipe.warmup
    )
    mean = {name: value.detach().clone() for name, value in net.state_dict().items()}
    first, losses = 0, [] if losses is None else losses
    if resumed_state := checkpoint and checkpoint.read():
        net.load_state_dict(resumed_state["net"])
        optimiser.load_state_dict(resumed_state["optimiser"])
        plan.load_state_dict(resumed_state["plan"])
        random.bit_generator.state = resumed_state["random"]
        mean, first = resumed_state["mean"], resumed_state["updates"]
        losses += map(tuple, resumed_state["losses"])
        if watch:
            watch.scores.update(resumed_state["scores"])
    for update in range(first, recipe.updates):
        value = _train_step(net, draw(random, update), recipe, optimiser)
        plan.step()
        share = min(recipe.memory, update / (update + MEAN_WARMUP))
        for name, now in net.state_dict().items():
            mean[name] = mean[name] * share + now * (1 - share) if now.is_floating_point() else now.clone()
        losses.append(value)
        on_step(update + 1, sum(value))
        if watch and update + 1 in watch.at:
            with torch.random.fork_rng(devices=[]):  # creating a net draws random weights
                watch.scores[update + 1] = watch.score(_averaged_net(net, mean))
        if checkpoint and (update + 1) % checkpoint.every == 0 and update + 1 < recipe.updates:
            state = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "plan": plan.state_dict()}
            state |= {"mean": mean, "random": random.bit_generator.state, "updates": update + 1}
            state |= {"losses": losses, "scores": watch.scores if watch else {}}
            checkpoint.write(state)
    return _averaged_net(net, mean)


def _averaged_net(net: Detector, mean: dict[str, torch.Tensor]) -> Detector:
    """Return a net with the running mean of the weights, ready to predict."""
    averaged = new_net(net)
    averaged.load_state_dict(mean)
    return averaged.eval()


def _train_step(net: Detector, batch: Batch, recipe: Recipe, optimiser: torch.optim.Optimizer) -> tuple[float, float]:
    """Make one step; return the class loss and the box loss."""
    image = torch.from_numpy(np.stack(batch.images))[:, None]
    target = assign_targets(batch.boxes, batch.labelled_classes, net.grid)
    with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
        outputs = net(image.to(memory_format=torch.channels_last))
    outputs = tuple(part.float() for part in outputs)
    classes, sides = detection_loss(*outputs, target, net.grid, recipe.importance)
    value = classes + sides
    if any(batch.image_labels):
        film = recipe.image_label_weight * image_label_loss(outputs[0], batch.image_labels)
        value, classes = value + film, classes + film
    optimiser.zero_grad()
    value.backward()
    nn.utils.clip_grad_norm_(net.parameters(), recipe.clip)
    optimiser.step()
    return classes.item(), sides.item()


def fit_platt(confidence: np.ndarray, hit: np.ndarray, weights: np.ndarray | None = None) -> tuple[float, float]:
    """Fit slope and offset on the logit so that the sigmoid is the fraction of hits (weak prior: slope 1).

    All arrays (N,); ``weights``: weight of each box, 1 by default.
    """
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
