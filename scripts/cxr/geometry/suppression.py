"""Non-maximum suppression: keeping the most confident of overlapping boxes."""

import numpy as np

from cxr.geometry.boxes import box_iou


def preference(boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the order (N,) of decreasing confidence; coordinates, then class index, break ties."""
    return np.lexsort((classes, boxes[:, 3], boxes[:, 2], boxes[:, 1], boxes[:, 0], -confidence))


def suppress(
    boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray, iou: float, most: int | None = None
) -> np.ndarray:
    """Greedy non-maximum suppression within each class.

    Takes boxes (N, 4), confidences (N,) and class indices (N,). Returns the kept indices, at most ``most``, in order of
    :func:`preference`. A box is dropped if a kept box of its class that comes before it has an IoU above ``iou``.
    """
    order = preference(boxes, confidence, classes)
    # per class, the positions that are still candidates; one row of IoUs at a time, because a net may return a hundred
    # thousand boxes
    candidates_by_class = {kind: np.nonzero(classes[order] == kind)[0] for kind in np.unique(classes)}
    alive = np.ones(len(order), bool)
    kept_indices = []
    for place, index in enumerate(order):
        if len(kept_indices) == most:
            break
        if alive[place]:
            kept_indices.append(index)
            later = candidates_by_class[classes[index]]
            later = later[later > place]
            beaten = box_iou(boxes[index][None], boxes[order[later]])[0] > iou
            alive[later[beaten]] = False
            candidates_by_class[classes[index]] = later[~beaten]
    return np.array(kept_indices, dtype=np.int64)
