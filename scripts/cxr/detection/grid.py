"""What a detector on a grid gives for a picture, and the boxes chosen of it: numpy alone.

For each cell of the grid there is a logit a class and, a group of classes, the distances from the cell's centre to the
four sides of the box, in cells.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cxr.geometry.suppression import preference, suppress

CONFIDENCE_DIGITS, PIXEL_DIGITS = 6, 2
"""Digits that a detector's confidences and corners are rounded to, which hides how a sum was ordered."""
STRIDE = 16
"""Pixels of the net's picture that a cell is wide."""
CANDIDATES = 4
"""Boxes looked at before suppression for each that is let through."""


@dataclass(frozen=True)
class Grid:
    """What a detector looks at and tells.

    classes: their names. groups: the group of each; the classes of one share their predicted box. size: px of the
    square picture that the net is given, a multiple of 32.
    """

    classes: tuple[str, ...]
    groups: tuple[int, ...]
    size: int

    @property
    def cells(self) -> int:
        """Cells in a row of the grid."""
        return self.size // STRIDE


def decode(distance: np.ndarray, groups: Sequence[int], side: int) -> np.ndarray:
    """Turn distances (2 or more groups x 4, rows, columns) into boxes (classes, rows, columns, 4) in frame pixels.

    ``distance`` holds left, top, right, bottom in cells, per group; ``groups`` gives the group of each class;
    ``side`` is that of the frame. Boxes are clipped to the frame.
    """
    _, rows, columns = distance.shape
    ltrb = distance.reshape(-1, 4, rows, columns).astype(np.float64).transpose(0, 2, 3, 1)
    cell = np.array([side / columns, side / rows])
    centre = np.stack(np.meshgrid(np.arange(columns) + 0.5, np.arange(rows) + 0.5), axis=-1)
    boxes = np.concatenate([centre - ltrb[..., :2], centre + ltrb[..., 2:]], axis=-1) * np.tile(cell, 2)
    return np.clip(boxes, 0.0, side)[list(groups)]


def select(
    boxes: np.ndarray, confidence: np.ndarray, *, floor: float, iou: float, most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Choose among decoded boxes (classes, rows, columns, 4) with confidences (classes, rows, columns).

    Returns boxes (N, 4), confidences (N,) and class indices (N,), best first: at least ``floor``, suppressed within
    each class above ``iou``, at most ``most``, rounded, none without area.
    """
    classes, rows, columns = np.nonzero(confidence >= floor)
    boxes = boxes[classes, rows, columns].round(PIXEL_DIGITS)
    confidence = confidence[classes, rows, columns].astype(np.float64).round(CONFIDENCE_DIGITS)
    solid = np.nonzero((boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]) & (confidence >= floor))[0]
    best = solid[preference(boxes[solid], confidence[solid], classes[solid])[: CANDIDATES * most]]
    chosen = best[suppress(boxes[best], confidence[best], classes[best], iou, most)]
    return boxes[chosen], confidence[chosen], classes[chosen]
