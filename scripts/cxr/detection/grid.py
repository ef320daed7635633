"""Decoding the output of a grid detector to boxes and selecting among them, with numpy alone.

Each grid cell has one logit per class and, per group of classes, the distances from the cell's centre to the four
sides of the box, in cells.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.geometry.boxes import confidence_order, suppress_overlaps

CONFIDENCE_DIGITS, PIXEL_DIGITS = 6, 2
"""Decimal digits of a detector's confidences and corners; rounding hides the order of summation."""
STRIDE = 16
"""Width of a cell in pixels of the net's input."""
CANDIDATES = 4
"""Number of candidates before suppression per box that may be returned."""


@dataclass(frozen=True)
class Grid:
    """Input size and classes of a detector.

    classes: their names. groups: the group of each class; the classes of a group share one predicted box. size: side of
    the net's square input in px, a multiple of 32.
    """

    classes: tuple[str, ...]
    groups: tuple[int, ...]
    size: int

    @property
    def cells(self) -> int:
        """Cells in a row of the grid."""
        return self.size // STRIDE


def decode_boxes(distance: np.ndarray, groups: Sequence[int], side: int) -> np.ndarray:
    """Turn distances (2 or more groups x 4, rows, columns) into boxes (classes, rows, columns, 4) in frame pixels.

    ``distance`` holds left, top, right, bottom in cells, per group; ``groups`` gives the group of each class; ``side``
    is the frame's side in px. Boxes are clipped to the frame.
    """
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
    """Select among decoded boxes (classes, rows, columns, 4) with confidences (classes, rows, columns).

    Returns boxes (N, 4), confidences (N,) and class indices (N,), best first, rounded, and none without area:
    confidence at least ``floor``, non-maximum suppression within each class above ``iou``, then across the classes
    above ``across``, at most ``most`` boxes. The classes ``apart`` take no part in the second suppression.
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
