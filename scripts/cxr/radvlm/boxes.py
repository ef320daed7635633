"""Boxes of samples: fractions of the original picture, written with two decimals, the largest first."""

import numpy as np
from numpy.typing import ArrayLike

DECIMALS = 2
"""Decimals of a written coordinate (paper)."""


def unit_boxes(boxes: np.ndarray, rows: ArrayLike, columns: ArrayLike) -> np.ndarray:
    """Return boxes (N, 4), in pixels of a picture of ``rows`` × ``columns``, as fractions of its sides, clipped.

    ``rows``, ``columns``: of one picture, or (N,) of each box's own.
    """
    sides = np.stack([columns, rows, columns, rows], axis=-1).astype(np.float64)
    return np.clip(np.asarray(boxes, np.float64).reshape(-1, 4) / sides, 0.0, 1.0)


def rounded(value: float) -> float:
    """Return a fraction as it is written: with two decimals, an exact half to the even neighbour."""
    return float(f"{value:.{DECIMALS}f}")


def with_area(boxes: np.ndarray) -> np.ndarray:
    """Return which of the boxes (N, 4) have rising corners still once they are written, bool (N,)."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    has_area = (sides > 1.01 * 10.0**-DECIMALS).all(axis=1)  # corners so far apart are written differently
    for at in np.flatnonzero(~has_area & (sides > 0).all(axis=1)):
        x1, y1, x2, y2 = map(rounded, boxes[at])
        has_area[at] = x1 < x2 and y1 < y2
    return has_area


def in_order(boxes: np.ndarray) -> tuple[tuple[float, float, float, float], ...]:
    """Return boxes (N, 4) by their area, the largest first; of equal ones the one further up and left first."""
    box_tuples = [tuple(map(float, box)) for box in np.asarray(boxes, np.float64).reshape(-1, 4)]
    return tuple(sorted(box_tuples, key=lambda box: (-(box[2] - box[0]) * (box[3] - box[1]), box[1], box[0], box)))
