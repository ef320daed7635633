"""Boxes of samples: fractions of the original image, written with two decimals, largest first."""

import numpy as np
from numpy.typing import ArrayLike

DECIMALS = 2
"""Decimals of a written coordinate (paper)."""


def unit_boxes(boxes: np.ndarray, rows: ArrayLike, columns: ArrayLike) -> np.ndarray:
    """Return boxes (N, 4), given in pixels, as fractions of the image's sides, clipped to 0–1.

    ``rows``, ``columns``: height and width of the image, scalars or (N,), one per box.
    """
    sides = np.stack([columns, rows, columns, rows], axis=-1).astype(np.float64)
    return np.clip(np.asarray(boxes, np.float64).reshape(-1, 4) / sides, 0.0, 1.0)


def round_coordinate(value: float) -> float:
    """Round a fraction to two decimals as it is written; exact halves round to even."""
    return float(f"{value:.{DECIMALS}f}")


def survive_rounding(boxes: np.ndarray) -> np.ndarray:
    """Return a mask, bool (N,), of the boxes (N, 4) that keep a positive area after rounding."""
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    has_area = (sides > 1.01 * 10.0**-DECIMALS).all(axis=1)  # such corners round to different values
    for at in np.flatnonzero(~has_area & (sides > 0).all(axis=1)):
        x1, y1, x2, y2 = map(round_coordinate, boxes[at])
        has_area[at] = x1 < x2 and y1 < y2
    return has_area


def sort_by_area(boxes: np.ndarray) -> tuple[tuple[float, float, float, float], ...]:
    """Return boxes (N, 4) sorted by area, largest first; ties go to the upper, then the left box."""
    box_tuples = [tuple(map(float, box)) for box in np.asarray(boxes, np.float64).reshape(-1, 4)]
    return tuple(sorted(box_tuples, key=lambda box: (-(box[2] - box[0]) * (box[3] - box[1]), box[1], box[0], box)))
