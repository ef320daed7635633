"""Half-open boxes (x1, y1, x2, y2) in pixels: clipping, area, IoU, non-maximum suppression."""

import numpy as np

CORNERS = ("x1", "y1", "x2", "y2")  # column names of a box in tables


def clip_boxes(boxes: np.ndarray, height: int, width: int) -> np.ndarray:
    """Clip float boxes (N, 4: x1, y1, x2, y2) to the image and round them to half-open pixel boxes, int64 (N, 4).

    A box gets the pixels whose centres it covers. A box that covers no pixel centre or contains NaN gets zero area.
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    boxes = np.where(np.isnan(boxes).any(axis=1, keepdims=True), 0.0, boxes)
    limits = np.array([width, height, width, height])
    pixels = np.ceil(np.clip(boxes, -1.0, limits + 1.0) - 0.5).astype(np.int64)
    pixels = np.clip(pixels, 0, limits)
    pixels[:, 2:] = np.maximum(pixels[:, 2:], pixels[:, :2])
    return pixels


def box_area(boxes: np.ndarray) -> np.ndarray:
    """Return the areas (...) of boxes (..., 4: x1, y1, x2, y2); 0 for a box with x2 < x1 or y2 < y1."""
    return np.clip(boxes[..., 2] - boxes[..., 0], 0, None) * np.clip(boxes[..., 3] - boxes[..., 1], 0, None)


def paired_iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the IoU (...) of paired boxes (..., 4) after broadcasting; 0 where the union is empty."""
    low = np.maximum(first[..., :2], second[..., :2])
    high = np.minimum(first[..., 2:], second[..., 2:])
    shared = np.clip(high - low, 0, None).prod(axis=-1)
    union = box_area(first) + box_area(second) - shared
    return np.divide(shared, union, out=np.zeros_like(shared, dtype=np.float64), where=union > 0)


def box_iou(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the IoU (N, M) of all pairs of boxes (N, 4) and (M, 4); 0 where the union is empty."""
    return paired_iou(first[:, None], second[None])


def bounding_box(mask: np.ndarray) -> tuple[int, int, int, int]:
    """Return the half-open bounding box (x1, y1, x2, y2) of a mask, bool (H, W); zeros for an empty mask."""
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1) if rows.size else (0, 0, 0, 0)


def confidence_order(boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Return the indices (N,) that sort boxes by decreasing confidence, then by coordinates, then by class index."""
    return np.lexsort((classes, boxes[:, 3], boxes[:, 2], boxes[:, 1], boxes[:, 0], -confidence))


def suppress_overlaps(
    boxes: np.ndarray, confidence: np.ndarray, classes: np.ndarray, iou: float, most: int | None = None
) -> np.ndarray:
    """Return the indices of the boxes (N, 4) that greedy non-maximum suppression per class keeps, at most ``most``.

    ``confidence`` and ``classes`` (class indices) are (N,). Boxes are visited in :func:`confidence_order`. A box is
    dropped if its IoU with a box of its class that was kept before exceeds ``iou``.
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
