"""Overlap of boxes, and the choice of the best among those that overlap."""

import numpy as np


def box_area(boxes: np.ndarray) -> np.ndarray:
    """Return the areas (N,) of boxes (N, 4: x1, y1, x2, y2); an inverted box has none."""
    return np.clip(boxes[:, 2] - boxes[:, 0], 0, None) * np.clip(boxes[:, 3] - boxes[:, 1], 0, None)


def box_iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection over union (N, M) of boxes (N, 4) and (M, 4); 0 where the union is empty."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)
    union = box_area(first)[:, None] + box_area(second)[None] - shared
    return np.divide(shared, union, out=np.zeros_like(shared, dtype=np.float64), where=union > 0)


def preference(boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the order (N,) of falling confidence; ties go by coordinates, then class index."""
    return np.lexsort((classes, boxes[:, 3], boxes[:, 2], boxes[:, 1], boxes[:, 0], -confidence))


def suppress(boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray, iou: float) -> np.ndarray:
    """Greedy non-maximum suppression within each class.

    Takes boxes (N, 4), confidences (N,) and class indices (N,); returns the indices kept, in order of
    :func:`preference`. A box goes if a preferred one of its class that stays overlaps it by more than ``iou``.
    """
    order = preference(boxes, confidence, classes)
    boxes, classes = boxes[order], classes[order]
    beats = (box_iou(boxes, boxes) > iou) & (classes[:, None] == classes[None])
    alive = np.ones(len(order), bool)
    for index in range(len(order)):
        if alive[index]:
            alive[index + 1 :] &= ~beats[index, index + 1 :]
    return order[alive]
