"""Boxes of answers on a grid of 1000, and their IoU with the true ones: of the unions of both."""

import numpy as np

from cxr.geometry.unions import union_iou
from cxr.vlm.conventions import Seen, convention_of
from cxr.vlm.reading import Reading, read_boxes

GRID = 1000


def on_grid(boxes: np.ndarray) -> np.ndarray:
    """Return boxes of fractions (N, 4) on the grid, int64, none of zero size."""
    grid = np.floor(np.asarray(boxes, np.float64).reshape(-1, 4) * GRID + 0.5).astype(np.int64)
    grid[:, :2] = np.minimum(grid[:, :2], GRID - 1)
    grid[:, 2:] = np.maximum(grid[:, 2:], grid[:, :2] + 1)
    return grid


def read_answer(text: str, convention: str, size: tuple[int, int]) -> tuple[Reading, np.ndarray]:
    """Return how an answer was read, and its boxes on the grid, int64 (N, 4). seen: (width, height) of the picture."""
    reading = read_boxes(text, convention_of(convention), Seen(*size))
    return reading, on_grid(reading.boxes)


def answer_iou(text: str, convention: str, size: tuple[int, int], true: np.ndarray) -> float:
    """Return the IoU of an answer's boxes with the true ones, int (M, 4) on the grid; 0 without a readable box."""
    return union_iou(read_answer(text, convention, size)[1], true)
