"""Scoring a detector against reference boxes, human or synthetic: recall, precision, false boxes per image."""

from collections.abc import Iterable

import numpy as np

from cxr.geometry.boxes import box_iou


def match(boxes: np.ndarray, truth: np.ndarray, iou: float) -> tuple[np.ndarray, np.ndarray]:
    """Match boxes (N, 4), best first, with true boxes (M, 4), each with at most one.

    A box matches the free true box of the highest IoU, if that is at least ``iou``. Returns which boxes hit (N,) and
    which true boxes were found (M,), both bool.
    """
    overlap = box_iou(boxes, truth)
    hit, found = np.zeros(len(boxes), bool), np.zeros(len(truth), bool)
    for index in range(len(boxes) if len(truth) else 0):
        free = np.where(found, -1.0, overlap[index])
        best = int(free.argmax())
        if free[best] >= iou:
            hit[index] = found[best] = True
    return hit, found


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
