"""The interface of engines that train detectors, and loading one by its name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.detection.proposals import ScoredBoxes
from cxr.semisyn.detectors.pools import LazySample
from cxr.semisyn.detectors.validation import Validation

BOX_SELECTION = {"floor": 0.001, "iou": 0.5, "most": 100}
"""How boxes are chosen among all of a net's: lowest confidence, IoU of suppression, boxes an image."""


@dataclass(frozen=True)
class DetectorsOptions:
    """Settings of one run (``semisyn.detectors``).

    engine, own: its name and its own section; budget: ``updates`` or ``epochs``, of which the number is in the key of
    that name; seed: of the project; findings: classes; kind, target: which boxes of the synthetic images; real,
    real_share, synthetic, extra, extra_size, shares: the run's own keys; references: what the settings tell of each
    reference of ``real``, in their order; points: times at which a training is told of; validation: references that it
    is scored on then, at the ``ious`` and so many ``recalls``.
    """

    engine: str
    own: dict
    budget: str
    updates: int
    epochs: int
    seed: int
    findings: Sequence[str]
    kind: str
    target: str
    real: Sequence[str] = ()
    real_share: float = 1.0
    synthetic: int | str = 0
    extra: Sequence[str] = ()
    extra_size: int | str = 0
    shares: Mapping[str, Sequence[float]] = field(default_factory=dict)
    references: Sequence[dict] = ()
    points: int = 1
    validation: Sequence[dict] = ()
    ious: Sequence[float] = ()
    recalls: int = 101


@dataclass(frozen=True)
class TrainingTask:
    """What one detector is trained on.

    pools: images by the name of their pool; shares: {pool: its share of a batch at the beginning and at the end};
    classes: names of the classes; updates: of the weights; seed: what all draws depend on; points: updates after which
    it is scored on the images of ``validation``, if there are any.
    """

    pools: Mapping[str, Sequence[LazySample]]
    shares: Mapping[str, tuple[float, float]]
    classes: tuple[str, ...]
    updates: int
    seed: int
    points: tuple[int, ...] = ()
    validation: Validation | None = None


class TrainingLog(NamedTuple):
    """What a training tells.

    The loss of every update, of classes and of boxes, and {update: score} of those that the engine could score.
    """

    losses: list[tuple[float, float]]
    scores: Mapping[int, float]


class DetectorEngine(Protocol):
    """A kind of detector. ``batch``: images an update."""

    batch: int

    def train(self, task: TrainingTask, folder: Path, unfinished: Path) -> TrainingLog:
        """Train a detector, write its files into ``folder``, and return its losses and scores.

        ``unfinished``: file or folder for an interrupted training, which is resumed, by an engine that can, if nothing
        that it depends on has changed; the stage removes it at the end.
        """
        ...

    def load(self, folder: Path) -> Callable[[np.ndarray], ScoredBoxes]:
        """Return what finds the boxes of a square frame uint8 (H, H), in its pixels, best first.

        :data:`BOX_SELECTION` says which boxes; classes are indices of the findings that it was trained on.
        """
        ...


def load_engine(name: str, options: object, setup: Setup) -> DetectorEngine:
    """Load an engine with ``load(options, setup)`` of ``cxr.semisyn.detectors.<name>``.

    Raises UserError for an unknown engine.
    """
    return engine_module("cxr.semisyn.detectors", name).load(options, setup)
