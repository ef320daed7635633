"""Overlap of boxes, and the choice of the best among those that overlap."""

import numpy as np

CONFIDENCE_DIGITS, PIXEL_DIGITS = 6, 2
"""Digits that a detector's confidences and corners are rounded to, which hides how a sum was ordered."""


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


def suppress(
    boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray, iou: float, most: int | None = None
) -> np.ndarray:
    """Greedy non-maximum suppression within each class.

    Takes boxes (N, 4), confidences (N,) and class indices (N,); returns the indices kept, the first ``most``, in order
    of :func:`preference`. A box goes if a preferred one of its class that stays overlaps it by more than ``iou``.
    """
    left = preference(boxes, confidence, classes)
    kept = []
    # one row of overlaps at a time: a net may give a hundred thousand boxes
    while len(left) and len(kept) != most:
        best, left = left[0], left[1:]
        kept.append(best)
        rivals = box_iou(boxes[best][None], boxes[left])[0] > iou
        left = left[~(rivals & (classes[left] == classes[best]))]
    return np.array(kept, dtype=np.int64)
