"""Boxes of answers on a grid of 1000, and the IoU of their union with the union of the reference boxes."""

import numpy as np

from cxr.geometry.unions import union_iou
from cxr.vlm.conventions import InputSize, find_convention
from cxr.vlm.reading import Reading, read_boxes

GRID = 1000


def to_grid(boxes: np.ndarray) -> np.ndarray:
    """Return boxes of fractions (N, 4) on the grid, int64, each at least one cell wide and high."""
    grid = np.floor(np.asarray(boxes, np.float64).reshape(-1, 4) * GRID + 0.5).astype(np.int64)
    grid[:, :2] = np.minimum(grid[:, :2], GRID - 1)
    grid[:, 2:] = np.maximum(grid[:, 2:], grid[:, :2] + 1)
    return grid


def read_answer(text: str, convention: str, size: tuple[int, int]) -> tuple[Reading, np.ndarray]:
    """Return the reading of an answer and its boxes on the grid, int64 (N, 4). size: (width, height) of the image."""
    reading = read_boxes(text, find_convention(convention), InputSize(*size))
    return reading, to_grid(reading.boxes)


def answer_iou(text: str, convention: str, size: tuple[int, int], true: np.ndarray) -> float:
    """Return the IoU of an answer's boxes with the reference boxes ``true``, int (M, 4) on the grid; 0 without any."""
    return union_iou(read_answer(text, convention, size)[1], true)
