"""Interface of the engines that train detectors, whose modules have ``load(setup)``, and their settings and task."""

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
    """Images with experts' boxes."""

    samples: Sequence[LazySample]

    @property
    def identity(self) -> str:
        """Digest of everything but the detector that a score depends on."""
        digest = hashlib.blake2b(digest_size=16)
        for sample in self.samples:
            digest.update(f"{sample.image_id} {sample.boxes} {sample.labelled_classes}".encode())
        return digest.hexdigest()

    def score(self, find: Callable[[np.ndarray], ScoredBoxes]) -> float:
        """Return the mean AP over IoUs and classes, NaN without a box. ``find``: returns a frame's boxes."""
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
"""Selection of a net's boxes: lowest confidence, IoU of non-maximum suppression, most boxes per image."""


@dataclass(frozen=True)
class DetectorsOptions:
    """Settings of one run. own: of the engine; budget: ``updates`` or ``epochs``, the key that counts; kind, target: of
    the synthetic boxes; references, validation: settings of the learnt and of the scored references."""

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
    validation: Sequence[dict] = ()


@dataclass(frozen=True)
class TrainingTask:
    """One training: {pool: its images} and {pool: its shares of a batch at the first and at the last step}. epochs:
    most epochs of an engine that divides the steps; points: steps at which ``validation`` is scored."""

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
    """A kind of detector. ``batch``: images per step."""

    batch: int

    def train(self, task: TrainingTask, folder: Path, unfinished: Path) -> tuple[Losses, Mapping[int, float]]:
        """Train a detector, write its files to ``folder``, and return its losses and {step: validation score}. A
        training that was interrupted resumes from ``unfinished`` if no input has changed."""
        ...

    def load(self, folder: Path) -> Callable[[np.ndarray], ScoredBoxes]:
        """Return a function from a frame uint8 (H, H) to its boxes, px, selected by :data:`BOX_SELECTION`."""
        ...
