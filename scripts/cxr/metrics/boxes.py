"""Scoring a detector against reference boxes, human or synthetic: recall, precision, false boxes per image."""

from collections.abc import Iterable

import numpy as np

from cxr.metrics.matching import Boxes, take


def match(boxes: np.ndarray, truth: np.ndarray, iou: float) -> tuple[np.ndarray, np.ndarray]:
    """Match boxes (N, 4) of one image, best first, with its true boxes (M, 4), each with at most one.

    A box matches the free true box of the highest IoU, if that is at least ``iou`` (:mod:`cxr.metrics.matching`).
    Returns which boxes hit (N,) and which true boxes were found (M,), both bool.
    """
    one, other = (Boxes(np.zeros(len(part), np.int64), part) for part in (boxes, truth))
    hits, found = take(one, other, [iou])
    return hits[0], found[0]


def score(
    images: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], *, iou: float, confidence: float
) -> dict[str, float]:
    """Score images, each (boxes (N, 4) best first, confidences (N,), true boxes (M, 4)).

    Returns the number of images and of true boxes, recall, precision, and false boxes per image, counting only boxes
    of at least ``confidence``. A second box on a true box that is already found is false.
    """
    total = true = hits = shown = 0
    for boxes, confidences, truth in images:
        boxes = boxes[confidences >= confidence]
        hit, found = match(boxes, truth, iou)
        total, true, hits, shown = total + 1, true + len(truth), hits + int(found.sum()), shown + len(hit)
    return {
        "images": total,
        "boxes": true,
        "recall": hits / max(true, 1),
        "precision": hits / max(shown, 1),
        "false_per_image": (shown - hits) / max(total, 1),
    }
