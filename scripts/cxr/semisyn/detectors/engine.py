"""Interface of the engines that train detectors, and their settings, task and loader."""

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
"""Selection of a net's boxes: lowest confidence, IoU of non-maximum suppression, most boxes per image."""


@dataclass(frozen=True)
class DetectorsOptions:
    """Settings of one run (``semisyn.detectors``).

    engine, own: its name and its own section; budget: ``updates`` or ``epochs``, the name of the key that counts; seed:
    of the project; findings: classes; kind, target: kind and convention of the synthetic boxes; real, real_share,
    synthetic, extra, extra_size, shares: keys of the run; references: settings of each reference in ``real``; points:
    number of rows in the table of epochs; validation: settings of the references that are scored at each of them, by AP
    at ``ious`` with ``recalls`` recall points.
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
    """One training.

    pools: {pool: its images}; shares: {pool: its fraction of a batch at the first and at the last step}; classes: names
    of the classes; updates: number of steps; seed: of all draws; points: steps after which the detector is scored on
    ``validation``, if given.
    """

    pools: Mapping[str, Sequence[LazySample]]
    shares: Mapping[str, tuple[float, float]]
    classes: tuple[str, ...]
    updates: int
    seed: int
    points: tuple[int, ...] = ()
    validation: Validation | None = None


class TrainingLog(NamedTuple):
    """Log of a training: (class loss, box loss) of every step, and {step: validation score} where it was scored."""

    losses: list[tuple[float, float]]
    scores: Mapping[int, float]


class DetectorEngine(Protocol):
    """A kind of detector. ``batch``: images per step."""

    batch: int

    def train(self, task: TrainingTask, folder: Path, unfinished: Path) -> TrainingLog:
        """Train a detector, write its files to ``folder``, and return its losses and scores.

        ``unfinished``: path for the state of an interrupted training. An engine may resume from it if no input has
        changed; the stage removes it at the end.
        """
        ...

    def load(self, folder: Path) -> Callable[[np.ndarray], ScoredBoxes]:
        """Return a function from a square frame uint8 (H, H) to its boxes in pixels, best first.

        The boxes are selected by :data:`BOX_SELECTION`; classes are indices of the trained findings.
        """
        ...


def load_engine(name: str, options: object, setup: Setup) -> DetectorEngine:
    """Call ``load(options, setup)`` of ``cxr.semisyn.detectors.<name>``. Raises UserError for an unknown engine."""
    return engine_module("cxr.semisyn.detectors", name).load(options, setup)
