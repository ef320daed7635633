"""Decode the output of a grid detector to boxes, and select the best boxes, with numpy only.

The detector divides the image into square cells. It predicts a logit per cell and class. Per cell and group of classes,
it predicts a box, as the distances from the cell's centre to the four sides of the box, in cells.
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
    """Classes and input size of a detector, which determine the shape of its output."""

    classes: tuple[str, ...]
    groups: tuple[int, ...]  # group of each class, numbered from 0; the classes of a group share a predicted box
    size: int  # side of the square input, px, a multiple of 32

    @property
    def cells(self) -> int:
        """Number of cells in a row of the grid."""
        return self.size // STRIDE


def decode_boxes(distance: np.ndarray, groups: Sequence[int], side: int) -> np.ndarray:
    """Return the box of each class and cell, (classes, rows, columns, 4) in px, clipped to a frame of ``side`` px.
    ``distance`` (groups x 4, rows, columns): distances in cells from a cell's centre to the left, top, right and bottom
    side of its box. ``groups``: group of each class."""
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
    """Select up to ``most`` of the boxes (classes, rows, columns, 4) by their confidence (classes, rows, columns).

    Returns rounded boxes (N, 4), confidences (N,) and classes (N,), best first. A box is dropped if its confidence is
    below ``floor``. A box is also dropped if its IoU with a better box exceeds ``iou`` (same class) or ``across``
    (another class). A box of a class in ``apart`` is compared only with boxes of its class.
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
