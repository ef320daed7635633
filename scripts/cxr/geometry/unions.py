"""Areas of unions of boxes, exact for integers: by coordinate compression, without a raster of the picture."""

import numpy as np


def covered(boxes: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Return which cells between neighbouring ``ys`` and ``xs`` some box (N, 4: x1, y1, x2, y2) covers.

    bool (len(ys) - 1, len(xs) - 1); the corners of the boxes must be among ``xs`` and ``ys``, which are sorted.
    """
    plane = np.zeros((max(0, len(ys) - 1), max(0, len(xs) - 1)), bool)
    columns, rows = np.searchsorted(xs, boxes[:, ::2]).tolist(), np.searchsorted(ys, boxes[:, 1::2]).tolist()
    for (left, right), (top, bottom) in zip(columns, rows, strict=True):
        plane[top:bottom, left:right] = True
    return plane


def union_overlap(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Return intersection and union, in cells, of the unions of boxes int (N, 4) and (M, 4), half-open.

    Raises ValueError for boxes that are not of integers.
    """
    first, second = (np.asarray(part).reshape(-1, 4) for part in (first, second))
    for part in (first, second):
        if len(part) and part.dtype.kind not in "iu":
            raise ValueError("unions of boxes are counted in whole cells: give integers")
    if not len(first) + len(second):
        return 0, 0
    xs, ys = (np.unique(np.concatenate([first[:, at::2], second[:, at::2]])) for at in (0, 1))
    # float64 holds every whole number of cells below 2 ** 53
    widths, heights = np.diff(xs).astype(np.float64), np.diff(ys).astype(np.float64)
    one, other = covered(first, xs, ys), covered(second, xs, ys)
    both, either = (int(heights @ (plane @ widths)) for plane in (one & other, one | other))
    return both, either


def union_iou(first: np.ndarray, second: np.ndarray) -> float:
    """Return the IoU of the unions of boxes int (N, 4) and (M, 4); 0 where both are empty."""
    both, either = union_overlap(first, second)
    return both / either if either else 0.0
