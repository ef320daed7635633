"""Decode the output of a grid detector to boxes, and select the best boxes, with numpy only.

Each cell of the grid has a logit per class. Per group of classes, it has the distances from its centre to the four
sides of the box, in cells.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.geometry.boxes import confidence_order, suppress_overlaps

CONFIDENCE_DIGITS, PIXEL_DIGITS = 6, 2  # decimals of outputs; rounding hides effects of the summation order
STRIDE = 16  # width of a cell in pixels of the net's input
CANDIDATES = 4  # maximum number of candidates before suppression, as a multiple of the boxes to return


@dataclass(frozen=True)
class Grid:
    """The classes of a detector, the group of each class, and the side of its square input, px, a multiple of 32. The
    classes of a group share a predicted box."""

    classes: tuple[str, ...]
    groups: tuple[int, ...]
    size: int

    @property
    def cells(self) -> int:
        """Number of cells in a row of the grid."""
        return self.size // STRIDE


def decode_boxes(distance: np.ndarray, groups: Sequence[int], side: int) -> np.ndarray:
    """Convert distances (left, top, right, bottom) in cells, (at least 2 groups x 4, rows, columns), to boxes (classes,
    rows, columns, 4), clipped to a frame of ``side`` px. ``groups``: group of each class."""
    _, rows, columns = distance.shape
    ltrb = distance.reshape(-1, 4, rows, columns).astype(np.float64).transpose(0, 2, 3, 1)
    cell = np.array([side / columns, side / rows])
    centre = np.stack(np.meshgrid(np.arange(columns) + 0.5, np.arange(rows) + 0.5), axis=-1)
    boxes = np.concatenate([centre - ltrb[..., :2], centre + ltrb[..., 2:]], axis=-1) * np.tile(cell, 2)
    return np.clip(boxes, 0.0, side)[list(groups)]


def select_boxes(
    boxes: np.ndarray,
    confidence: np.ndarray,
    *,
    floor: float,
    iou: float,
    most: int,
    across: float = 1.0,
    apart: Collection[int] = (),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Select up to ``most`` of the decoded boxes (classes, rows, columns, 4), best first.

    Returns rounded boxes (N, 4), confidences (N,) and classes (N,). A box is dropped if its confidence is below
    ``floor``. It is also dropped if its IoU with a better box exceeds ``iou`` (same class) or ``across`` (another
    class). Classes in ``apart`` compete only with themselves.
    """
    classes, rows, columns = np.nonzero(confidence >= floor)
    boxes = boxes[classes, rows, columns].round(PIXEL_DIGITS)
    confidence = confidence[classes, rows, columns].astype(np.float64).round(CONFIDENCE_DIGITS)
    solid = np.nonzero((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]) & (confidence >= floor))[0]
    best = solid[confidence_order(boxes[solid], confidence[solid], classes[solid])[: CANDIDATES * most]]
    selected = best[suppress_overlaps(boxes[best], confidence[best], classes[best], iou)]
    if across < 1:
        region = np.where(np.isin(classes[selected], list(apart)), classes[selected], -1)
        selected = selected[suppress_overlaps(boxes[selected], confidence[selected], region, across)]
    selected = selected[:most]
    return boxes[selected], confidence[selected], classes[selected]
