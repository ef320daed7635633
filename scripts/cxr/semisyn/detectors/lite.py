"""Engine ``lite`` of semisyn_detectors: the small anchor-free net of cxr.detection, trained from random weights."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import cv2
import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.seeds import stable_hash
from cxr.detection import training
from cxr.detection.grid import Grid, decode_boxes, select_boxes
from cxr.detection.net import Detector
from cxr.detection.proposals import ScoredBoxes
from cxr.detection.training import Checkpoint, Monitor, Recipe
from cxr.nets import tensors
from cxr.semisyn.detectors.engine import BOX_SELECTION, Losses, TrainingTask
from cxr.semisyn.detectors.pools import Sample, batch_drawer, read_sample

LICENCE = "that of the images it was trained on; lesions of part of them are painted, not real"
KIND, WEIGHTS = "semisyn_lite", "detector.safetensors"
"""Kind of weights in the header of the weights file, and name of this file."""


@dataclass(frozen=True, kw_only=True)
class LiteOptions:
    """Settings of the engine and of a training. updates: number of steps; size: side of the net's input, px; widths:
    channels of its layers; batch: images per step; checkpoint_every: steps between checkpoints. The other fields are
    those of :class:`cxr.detection.training.Recipe`."""

    updates: int
    size: int
    widths: tuple[int, ...] = (16, 32, 56, 96, 128)
    batch: int
    rate: float = 2e-3
    decay: float = 0.01
    warmup: float = 0.15
    clip: float = 5.0
    memory: float = 0.98
    bfloat16: bool = True
    checkpoint_every: int = 100


def grid_of(classes: Sequence[str], size: int) -> Grid:
    """Return the output grid of a net with an input of ``size`` px, which predicts a separate box for each class."""
    return Grid(tuple(classes), tuple(range(len(classes))), size)


def training_digest(
    pools: Mapping[str, Sequence[Sample]], shares: Mapping, classes: Sequence[str], options: LiteOptions, seed: int
) -> str:
    """Return a digest of a training's inputs: images, boxes, shares, options, seed."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([shares, list(classes), asdict(options), seed], sort_keys=True).encode())
    for name in sorted(shares):
        for sample in pools[name]:
            digest.update(f"{name} {sample.image_id} {sample.boxes} {sample.labelled_classes}".encode())
            digest.update(sample.image.tobytes())
    return digest.hexdigest()


def train_lite(
    pools: Mapping[str, Sequence[Sample]],
    shares: Mapping[str, tuple[float, float]],
    classes: Sequence[str],
    options: LiteOptions,
    seed: int,
    unfinished: Path | None = None,
    on_step: Callable[[int, float], None] = lambda update, loss: None,
    losses: list[tuple[float, float]] | None = None,
    watch: Monitor | None = None,
) -> Detector:
    """Train a detector on batches mixed from the pools. Trainings with the same seed start from the same weights. An
    interrupted training resumes from ``unfinished`` if no input has changed. ``on_step``, ``losses``, ``watch``: see
    :func:`training.train_net`. Raise ValueError if each pool is empty or has the weight 0 in ``shares``."""
    shares = {name: tuple(map(float, share)) for name, share in shares.items() if pools.get(name) and any(share)}
    if not shares:
        raise ValueError("train_lite needs a pool that has images and a weight above 0 in shares")
    grid = grid_of(classes, options.size)
    torch.manual_seed(stable_hash("weights", seed) % 2**32)
    net = Detector(grid, tuple(options.widths)).to(memory_format=torch.channels_last)
    names = ("updates", "rate", "decay", "warmup", "clip", "memory", "bfloat16")
    recipe = Recipe(**{name: getattr(options, name) for name in names}, importance=(1.0,) * len(classes))
    draw = batch_drawer(pools, shares, grid, size=options.batch, updates=options.updates, seed=seed)
    checkpoint = None
    if unfinished is not None:
        identity = training_digest(pools, shares, classes, options, seed) + (watch.identity if watch else "")
        checkpoint = Checkpoint(unfinished, options.checkpoint_every, identity)
    return training.train_net(net, draw, recipe, seed, on_step, checkpoint, losses, watch)


@torch.no_grad()
def predict_boxes(net: Detector, image: np.ndarray, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return (boxes (N, 4), confidences, class indices), best first. Boxes are scaled to an image of ``side`` px."""
    logit, distance = net(torch.from_numpy(image.astype(np.float32) / 255)[None, None])
    confidence = torch.sigmoid(logit[0].double()).numpy()
    return select_boxes(decode_boxes(distance[0].numpy(), net.grid.groups, side), confidence, **BOX_SELECTION)


def find_boxes(net: Detector, frame: np.ndarray) -> ScoredBoxes:
    """Return a detector's boxes on a square frame uint8 (H, H), in pixels of the frame, best first."""
    small = cv2.resize(frame, (net.grid.size, net.grid.size), interpolation=cv2.INTER_AREA)
    return ScoredBoxes(*predict_boxes(net, small, frame.shape[0]))


class LiteEngine:
    """The engine ``lite``, with the settings ``semisyn.detectors.lite``."""

    def __init__(self, engine_settings: dict):
        self.settings, self.batch = engine_settings, engine_settings["batch"]

    def train(self, task: TrainingTask, folder: Path, unfinished: Path) -> tuple[Losses, Mapping[int, float]]:
        """See :class:`cxr.semisyn.detectors.engine.DetectorEngine`."""
        options = LiteOptions(**self.settings | {"updates": task.updates})
        grid, losses = grid_of(task.classes, options.size), []
        pools = {name: [read_sample(sample, grid) for sample in task.pools[name]] for name in task.shares}
        validation, watch = task.validation, None
        if validation:
            watch = Monitor(
                frozenset(task.points), lambda net: validation.score(partial(find_boxes, net)), validation.identity, {}
            )
        net = train_lite(pools, task.shares, task.classes, options, task.seed, unfinished, losses=losses, watch=watch)
        weights, facts = net.state_dict(), {"kind": KIND, "licence": LICENCE, "classes": list(task.classes)}
        facts |= {"size": options.size, "widths": list(options.widths)}
        tensors.write_weights(folder / WEIGHTS, tensors.tensor_kinds(weights), weights.get, facts)
        return losses, watch.scores if watch else {}

    def load(self, folder: Path) -> Callable[[np.ndarray], ScoredBoxes]:
        """See :class:`cxr.semisyn.detectors.engine.DetectorEngine`."""
        return partial(find_boxes, read_detector(folder / WEIGHTS))


def read_detector(path: Path) -> Detector:
    """Read a detector from its weights file. Raise UserError if the file is not one of this engine."""
    weights, facts = tensors.read_weights(path, KIND)
    net = Detector(grid_of(facts["classes"], facts["size"]), tuple(facts["widths"]))
    tensors.fill_net(net, weights, path)
    return net.eval()


def load(setup: Setup) -> LiteEngine:
    """Load the engine."""
    return LiteEngine({"checkpoint_every": setup.compute.get("checkpoint_every", 100)} | setup.engine_settings)
