"""Score a detector during training on the images of references with the role val."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.detection.proposals import ScoredBoxes
from cxr.metrics.average_precision import average_precision, match_predictions
from cxr.metrics.matching import Boxes
from cxr.semisyn.detectors.pools import LazySample


@dataclass(frozen=True)
class Validation:
    """Images with experts' boxes. ious: over which AP is averaged; recalls: number of recall points of an AP."""

    films: Sequence[LazySample]
    ious: Sequence[float]
    recalls: int

    @property
    def identity(self) -> str:
        """Digest of everything but the detector that a score depends on."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(f"{list(self.ious)} {self.recalls}".encode())
        for film in self.films:
            digest.update(f"{film.image_id} {film.boxes} {film.labelled_classes}".encode())
        return digest.hexdigest()

    def score(self, find: Callable[[np.ndarray], ScoredBoxes]) -> float:
        """Return the mean AP over IoUs and over the classes with reference boxes, 0 to 1; NaN without any box.

        ``find``: returns the boxes of a frame in its pixels. A class is scored on images where it is labelled only.
        """
        detections = [find(film.read_frame()) for film in self.films]
        classes = sorted({box[0] for film in self.films for box in film.boxes})
        values = [self._class(kind, detections) for kind in classes]
        return float(np.mean(values)) if values else float("nan")

    def _class(self, kind: int, detections: Sequence[ScoredBoxes]) -> float:
        true, predicted, confidence = [], [], []
        labelled = [
            (film, boxes) for film, boxes in zip(self.films, detections, strict=True) if kind in film.labelled_classes
        ]
        for number, (film, boxes) in enumerate(labelled):
            true += [(number, *box[1:]) for box in film.boxes if box[0] == kind]
            is_class = np.asarray(boxes.classes) == kind
            predicted += [(number, *box) for box in np.asarray(boxes.boxes)[is_class].tolist()]
            confidence += np.asarray(boxes.confidence)[is_class].tolist()
        pairs = match_predictions(_boxes(predicted), np.array(confidence), _boxes(true), len(labelled), self.ious)
        return float(average_precision(pairs, self.recalls).mean())


def _boxes(rows: Sequence[tuple]) -> Boxes:
    table = np.array(rows, np.float64).reshape(-1, 5)
    return Boxes(table[:, 0].astype(np.int64), table[:, 1:])
