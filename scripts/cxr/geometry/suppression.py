"""The choice of the best among boxes that overlap."""

import numpy as np

from cxr.geometry.boxes import box_iou


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
    order = preference(boxes, confidence, classes)
    # of each class, the places in that order which are still alive; one row of overlaps at a time, because a net may
    # give a hundred thousand boxes
    left = {kind: np.nonzero(classes[order] == kind)[0] for kind in np.unique(classes)}
    alive = np.ones(len(order), bool)
    kept = []
    for place, index in enumerate(order):
        if len(kept) == most:
            break
        if alive[place]:
            kept.append(index)
            later = left[classes[index]]
            later = later[later > place]
            beaten = box_iou(boxes[index][None], boxes[order[later]])[0] > iou
            alive[later[beaten]] = False
            left[classes[index]] = later[~beaten]
    return np.array(kept, dtype=np.int64)
