"""The parts of Algorithm 1 (ils.md section 5): one pass over pixels, then arithmetic over all boxes at once.

Maps and masks are uint8 (H, W) of 0 and 1; boxes are half-open pixel boxes int64 (N, 4: x1, y1, x2, y2).
"""

from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.vocabulary import BOX_CONDITIONS
from cxr.ils.masks.thresholds import Ratio

CONDITION_BITS = {name: 1 << bit for bit, name in enumerate(BOX_CONDITIONS)}
"""Bits of a box's verdict for one finding, one per failed condition. 0 means that the box is productive."""

_CROSS = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))


class Components(NamedTuple):
    """8-connected components: ``labels`` (H, W), 0 = background, of the smallest integer type that holds them."""

    labels: np.ndarray

    def extent(self, label: int) -> tuple[int, tuple[int, int, int, int]]:
        """Return the number of pixels of a component and its half-open bounding box.

        Measured one at a time: few components meet a productive box, and measuring all takes six times as long as
        finding them.
        """
        component_mask = (self.labels == label).view(np.uint8)
        x, y, width, height = cv2.boundingRect(component_mask)
        return cv2.countNonZero(component_mask), (x, y, x + width, y + height)

    def touched(self, box: np.ndarray) -> list[int]:
        """Return the components that share a pixel with a box (x1, y1, x2, y2), by label."""
        x1, y1, x2, y2 = box
        box_labels = self.labels[y1:y2, x1:x2].ravel()
        # after sorting, the first pixel of each label is the first of all or differs from the one before
        starts = box_labels[1:][box_labels[1:] != box_labels[:-1]]
        return sorted({*box_labels[:1].tolist(), *starts.tolist()} - {0})


def apply_opening(binary: np.ndarray) -> np.ndarray:
    """Open once with a 3x3 cross. Outside the map is background, so the border erodes too."""
    eroded = cv2.erode(binary, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return cv2.dilate(eroded, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)


def find_components(binary: np.ndarray) -> Components:
    """Return the 8-connected components of a map."""
    height, width = binary.shape
    # while OpenCV scans, no two labels start within a block of 2 x 2 pixels
    most = -(-height // 2) * -(-width // 2)
    kind = cv2.CV_16U if most < 2**16 else cv2.CV_32S
    return Components(cv2.connectedComponents(binary, connectivity=8, ltype=kind)[1])


def index_corners(boxes: np.ndarray, width: int) -> np.ndarray:
    """Return the flat indexes of the boxes' corners in the summed-area table of a map with ``width`` columns.

    int64 (4, N): lower right, upper right, lower left, upper left; for :func:`count_pixels_in_boxes`.
    """
    x1, y1, x2, y2 = boxes.T
    return np.stack([y2, y1, y2, y1]) * (width + 1) + np.stack([x2, x2, x1, x1])


def count_pixels_in_boxes(binary: np.ndarray, corner_indexes: np.ndarray) -> np.ndarray:
    """Return the number of pixels of ``binary`` in each box, int64 (N,), by one summed-area table.

    ``corner_indexes``: the boxes' :func:`index_corners`.
    """
    if not corner_indexes.size:
        return np.zeros(0, np.int64)
    corner_sums = cv2.integral(binary).ravel()[corner_indexes].astype(np.int64)
    return corner_sums[0] - corner_sums[1] - corner_sums[2] + corner_sums[3]


def compute_box_areas(boxes: np.ndarray) -> np.ndarray:
    """Return the area of each box in pixels, int64 (N,)."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def compute_box_iou(area: np.ndarray, shared: np.ndarray, mask_area: int) -> Ratio:
    """Return the IoU of boxes with a mask; 0 for an empty mask.

    ``area``: pixels of each box, ``shared``: those of it in the mask (integers (N,)), ``mask_area``: those of the mask.
    """
    return Ratio(shared, area + mask_area - shared if mask_area > 0 else np.zeros_like(area))


def flag_failures(condition: str, holds: np.ndarray) -> np.ndarray:
    """Return uint8 (N,): the bit of a condition where it fails, 0 where it ``holds`` (bool (N,))."""
    return np.where(holds, np.uint8(0), np.uint8(CONDITION_BITS[condition]))
