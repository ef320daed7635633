"""Non-maximum suppression: keep the most confident of overlapping boxes."""

import numpy as np

from cxr.geometry.boxes import box_iou


def confidence_order(boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the indices (N,) by decreasing confidence; coordinates, then class index, break ties."""
    return np.lexsort((classes, boxes[:, 3], boxes[:, 2], boxes[:, 1], boxes[:, 0], -confidence))


def suppress_overlaps(
    boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray, iou: float, most: int | None = None
) -> np.ndarray:
    """Return the indices that greedy non-maximum suppression keeps within each class, at most ``most``.

    Takes boxes (N, 4), confidences (N,) and class indices (N,). In :func:`confidence_order`, a box is dropped if an
    earlier kept box of its class overlaps it by more than ``iou``.
    """
    order = confidence_order(boxes, confidence, classes)
    # IoUs are computed one row at a time, because a net may return a hundred thousand boxes
    candidates_by_class = {kind: np.nonzero(classes[order] == kind)[0] for kind in np.unique(classes)}
    alive = np.ones(len(order), bool)
    kept_indices: list[int] = []
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
