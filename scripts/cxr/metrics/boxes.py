"""Scoring a detector against reference boxes, human or synthetic: recall, precision, false boxes per image."""

from collections.abc import Iterable

import numpy as np

from cxr.metrics.matching import Boxes, take


def match(boxes: np.ndarray, truth: np.ndarray, iou: float) -> tuple[np.ndarray, np.ndarray]:
    """Match boxes (N, 4) of one image, best first, with its true boxes (M, 4), each with at most one.

    A box matches the free true box of the highest IoU, if that is at least ``iou`` (:mod:`cxr.metrics.matching`).
    Returns which boxes hit (N,) and which true boxes were found (M,), both bool.
    """
    predicted, reference = (Boxes(np.zeros(len(part), np.int64), part) for part in (boxes, truth))
    hits, matched = take(predicted, reference, [iou])
    return hits[0], matched[0]


def score(
    images: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], *, iou: float, confidence: float
) -> dict[str, float]:
    """Score images, each (boxes (N, 4) best first, confidences (N,), true boxes (M, 4)).

    Returns the number of images and of true boxes, recall, precision, and false boxes per image, counting only boxes
    of at least ``confidence``. A second box on a true box that is already found is false.
    """
    total = true = hits = num_predicted = 0
    for boxes, confidences, truth in images:
        boxes = boxes[confidences >= confidence]
        hit, matched = match(boxes, truth, iou)
        total, true, hits, num_predicted = (
            total + 1,
            true + len(truth),
            hits + int(matched.sum()),
            num_predicted + len(hit),
        )
    return {
        "images": total,
        "boxes": true,
        "recall": hits / max(true, 1),
        "precision": hits / max(num_predicted, 1),
        "false_per_image": (num_predicted - hits) / max(total, 1),
    }
