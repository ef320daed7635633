"""Areas of unions of boxes, exact for integers: by coordinate compression, without a raster."""

import numpy as np


def covered(boxes: np.ndarray, xs: np.ndarray, ys: np.ndarray) -> np.ndarray:
    """Return which cells between neighbouring ``ys`` and ``xs`` some box (N, 4: x1, y1, x2, y2) covers.

    bool (len(ys) - 1, len(xs) - 1); the corners of the boxes must be among ``xs`` and ``ys``, which are sorted.
    """
    change = np.zeros((len(ys), len(xs)), np.int64)
    left, right = np.searchsorted(xs, boxes[:, 0]), np.searchsorted(xs, boxes[:, 2])
    top, bottom = np.searchsorted(ys, boxes[:, 1]), np.searchsorted(ys, boxes[:, 3])
    for rows, columns, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
        np.add.at(change, (rows, columns), sign)
    return change.cumsum(axis=0).cumsum(axis=1)[:-1, :-1] > 0


def union_overlap(first: np.ndarray, second: np.ndarray) -> tuple[int, int]:
    """Return intersection and union, in cells, of the unions of boxes int (N, 4) and (M, 4), half-open.

    Raises ValueError for boxes that are not of integers.
    """
    first, second = (np.asarray(part).reshape(-1, 4) for part in (first, second))
    for part in (first, second):
        if len(part) and part.dtype.kind not in "iu":
            raise ValueError("unions of boxes are counted in whole cells: give integers")
    both = np.concatenate([part.astype(np.int64) for part in (first, second)])
    both = both[(both[:, 2] > both[:, 0]) & (both[:, 3] > both[:, 1])]
    xs, ys = np.unique(both[:, [0, 2]]), np.unique(both[:, [1, 3]])
    if not len(both):
        return 0, 0
    cells = np.diff(ys)[:, None] * np.diff(xs)[None]
    parts = []
    for part in (first, second):
        part = part[(part[:, 2] > part[:, 0]) & (part[:, 3] > part[:, 1])] if len(part) else np.zeros((0, 4), np.int64)
        parts.append(covered(part, xs, ys))
    return int(cells[parts[0] & parts[1]].sum()), int(cells[parts[0] | parts[1]].sum())


def union_iou(first: np.ndarray, second: np.ndarray) -> float:
    """Return the IoU of the unions of boxes int (N, 4) and (M, 4); 0 where both are empty."""
    both, either = union_overlap(first, second)
    return both / either if either else 0.0
