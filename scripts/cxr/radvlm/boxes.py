"""Boxes of samples: fractions of the original picture, written with two decimals, the largest first."""

import numpy as np

DECIMALS = 2
"""Decimals of a written coordinate (paper)."""


def unit_boxes(boxes: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return boxes (N, 4), in pixels of a picture of ``rows`` × ``columns``, as fractions of its sides, clipped."""
    sides = np.array([columns, rows, columns, rows], np.float64)
    return np.clip(np.asarray(boxes, np.float64).reshape(-1, 4) / sides, 0.0, 1.0)


def rounded(value: float) -> float:
    """Return a fraction as it is written: with two decimals, an exact half to the even neighbour."""
    return float(f"{value:.{DECIMALS}f}")


def with_area(boxes: np.ndarray) -> np.ndarray:
    """Return which of the boxes (N, 4) have rising corners still once they are written, bool (N,)."""
    written = np.array([[rounded(value) for value in box] for box in np.asarray(boxes).reshape(-1, 4)]).reshape(-1, 4)
    return (written[:, 2:] > written[:, :2]).all(axis=1)


def in_order(boxes: np.ndarray) -> tuple[tuple[float, float, float, float], ...]:
    """Return boxes (N, 4) by their area, the largest first; of equal ones the one further up and left first."""
    held = [tuple(map(float, box)) for box in np.asarray(boxes, np.float64).reshape(-1, 4)]
    return tuple(sorted(held, key=lambda box: (-(box[2] - box[0]) * (box[3] - box[1]), box[1], box[0], box)))
