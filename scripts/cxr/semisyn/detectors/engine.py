"""Interface of the engines that train detectors. An engine's module has ``load(setup)``, which returns the engine."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from cxr.detection.proposals import ScoredBoxes
from cxr.metrics.average_precision import average_precision, match_predictions
from cxr.metrics.matching import Boxes
from cxr.semisyn.detectors.pools import LazySample
from cxr.semisyn.shared import AP_IOUS, AP_RECALLS


class Validation(NamedTuple):
    """Validation images with experts' boxes."""

    samples: Sequence[LazySample]

    @property
    def identity(self) -> str:
        """Digest of the images' ids, boxes and labelled classes, on which a detector's score depends."""
        digest = hashlib.blake2b(digest_size=16)
        for sample in self.samples:
            digest.update(f"{sample.image_id} {sample.boxes} {sample.labelled_classes}".encode())
        return digest.hexdigest()

    def score(self, find: Callable[[np.ndarray], ScoredBoxes]) -> float:
        """Return the mean AP over IoUs and classes, NaN without true boxes. ``find``: detects boxes on a frame."""
        detections = [find(sample.read_frame()) for sample in self.samples]
        classes = sorted({box[0] for sample in self.samples for box in sample.boxes})
        values = []
        for kind in classes:
            true, predicted, confidence = [], [], []
            pairs = zip(self.samples, detections, strict=True)
            labelled = [(sample, boxes) for sample, boxes in pairs if kind in sample.labelled_classes]
            for number, (sample, boxes) in enumerate(labelled):
                true += [(number, *box[1:]) for box in sample.boxes if box[0] == kind]
                is_class = np.asarray(boxes.classes) == kind
                predicted += [(number, *box) for box in np.asarray(boxes.boxes)[is_class].tolist()]
                confidence += np.asarray(boxes.confidence)[is_class].tolist()
            tables = (np.array(rows, np.float64).reshape(-1, 5) for rows in (predicted, true))
            predicted_boxes, true_boxes = (Boxes(table[:, 0].astype(np.int64), table[:, 1:]) for table in tables)
            matches = match_predictions(predicted_boxes, np.array(confidence), true_boxes, len(labelled), AP_IOUS)
            values.append(float(average_precision(matches, AP_RECALLS).mean()))
        return float(np.mean(values)) if values else float("nan")


BOX_SELECTION = {"floor": 0.001, "iou": 0.5, "most": 100}
"""Limits for a net's boxes: minimum confidence, IoU of non-maximum suppression, maximum number per image."""


@dataclass(frozen=True)
class DetectorsOptions:
    """Settings of one run. budget: which of ``updates`` (steps) and ``epochs`` limits the training; kind, target: boxes
    of synthetic images (settings ``boxes`` and ``target`` of semisyn.dataset); extra: kinds of control images;
    extra_size: number of each kind, or fifth, half, all; references, validation: references to train, validate on."""

    engine: str
    engine_settings: dict
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
    validation: Sequence[dict] = ()


@dataclass(frozen=True)
class TrainingTask:
    """Inputs of one training. pools: {pool (images of one origin): images}; shares: {pool: (weight in a batch at the
    first step, at the last step)}; updates: number of steps; epochs: maximum number of epochs into which an engine may
    divide the steps; points: steps at which the detector is scored on ``validation``."""

    pools: Mapping[str, Sequence[LazySample]]
    shares: Mapping[str, tuple[float, float]]
    classes: tuple[str, ...]
    updates: int
    epochs: int
    seed: int
    points: tuple[int, ...] = ()
    validation: Validation | None = None


Losses = list[tuple[float, float]]
"""(class loss, box loss) of every step."""


class DetectorEngine(Protocol):
    """An engine that trains detectors of one architecture. ``batch``: images per step."""

    batch: int

    def train(self, task: TrainingTask, folder: Path, unfinished: Path) -> tuple[Losses, Mapping[int, float]]:
        """Train a detector, write its files to ``folder``, and return its losses and {step: validation score}. An
        interrupted training resumes from the folder ``unfinished`` if no input has changed."""
        ...

    def load(self, folder: Path) -> Callable[[np.ndarray], ScoredBoxes]:
        """Read the detector in ``folder``. Return a function that finds boxes (px) on a frame uint8 (H, H)."""
        ...
