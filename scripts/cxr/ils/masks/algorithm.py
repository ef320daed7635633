"""Pixel operations of Algorithm 1 (paper A.3) and of the refinement of its connected components (A.5).

Maps and masks are uint8 (H, W) with values 0 and 1. Boxes are int64 (N, 4: x1, y1, x2, y2) in pixels; row y2 and
column x2 lie outside the box.
"""

from fractions import Fraction
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.vocabulary import BOX_CONDITIONS
from cxr.ils.masks.thresholds import Ratio

CONDITION_BITS = {name: 1 << bit for bit, name in enumerate(BOX_CONDITIONS)}
"""{condition: bit}. A box's verdict is the sum of its failed conditions' bits. A box with verdict 0 adds to masks."""

_CROSS = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))


class Components(NamedTuple):
    """The 8-connected components of a binary map."""

    labels: np.ndarray  # Number of each pixel's component (H, W), uint16 or int32; 0 is background

    def extent(self, label: int) -> tuple[int, tuple[int, int, int, int]]:
        """Return (number of pixels, bounding box (x1, y1, x2, y2)) of the component with a label.

        Only this component is measured, because to measure all takes six times as long as to find all.
        """
        component_mask = (self.labels == label).view(np.uint8)
        x, y, width, height = cv2.boundingRect(component_mask)
        return cv2.countNonZero(component_mask), (x, y, x + width, y + height)

    def find_touching(self, box: np.ndarray) -> list[int]:
        """Return the sorted labels of the components that share a pixel with a box (x1, y1, x2, y2)."""
        x1, y1, x2, y2 = box
        box_labels = self.labels[y1:y2, x1:x2].ravel()
        # of neighbours with equal labels, the first is enough
        starts = box_labels[1:][box_labels[1:] != box_labels[:-1]]
        return sorted({*box_labels[:1].tolist(), *starts.tolist()} - {0})


def apply_opening(binary: np.ndarray) -> np.ndarray:
    """Return the map after one morphological opening with a 3 x 3 cross. Pixels outside the map count as 0."""
    eroded = cv2.erode(binary, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return cv2.dilate(eroded, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)


def find_components(binary: np.ndarray) -> Components:
    """Return the 8-connected components of a map."""
    height, width = binary.shape
    # OpenCV numbers at most one component per block of 2 x 2 pixels
    most = -(-height // 2) * -(-width // 2)
    kind = cv2.CV_16U if most < 2**16 else cv2.CV_32S
    return Components(cv2.connectedComponents(binary, connectivity=8, ltype=kind)[1])


def index_corners(boxes: np.ndarray, width: int) -> np.ndarray:
    """Return the indexes of N boxes' corners in the flat summed-area table of a map ``width`` px wide, int64 (4, N)."""
    x1, y1, x2, y2 = boxes.T
    return np.stack([y2, y1, y2, y1]) * (width + 1) + np.stack([x2, x2, x1, x1])


def count_pixels_in_boxes(binary: np.ndarray, corner_indexes: np.ndarray) -> np.ndarray:
    """Return the number of 1-pixels in each box, int64 (N,). ``corner_indexes``: result of :func:`index_corners`."""
    if not corner_indexes.size:
        return np.zeros(0, np.int64)
    corner_sums = cv2.integral(binary).ravel()[corner_indexes].astype(np.int64)
    return corner_sums[0] - corner_sums[1] - corner_sums[2] + corner_sums[3]


def compute_box_iou(area: np.ndarray, shared: np.ndarray, mask_area: int) -> Ratio:
    """Return each box's IoU with a mask; ``area``: pixels of each box; ``shared``: pixels of the mask in each box."""
    return Ratio(shared, area + mask_area - shared if mask_area > 0 else np.zeros_like(area))


def flag_failures(condition: str, holds: np.ndarray) -> np.ndarray:
    """Return the bit of ``condition`` for each box that fails it, else 0, uint8 (N,). ``holds``: False for failures."""
    return np.where(holds, np.uint8(0), np.uint8(CONDITION_BITS[condition]))


_SQUARE = np.ones((3, 3), np.uint8)


class Region(NamedTuple):
    """A rectangular part of a mask."""

    y: int  # Row and column of the part's upper left pixel in the map
    x: int
    patch: np.ndarray  # uint8 (h, w) of 0 and 1

    @property
    def place(self) -> tuple[slice, slice]:
        """Rows and columns of the map that the part covers."""
        height, width = self.patch.shape
        return slice(self.y, self.y + height), slice(self.x, self.x + width)


def grow_component(
    component: np.ndarray, image: np.ndarray, lungs: np.ndarray, tolerance: int, steps: int
) -> np.ndarray:
    """Return a component (uint8 0/1 (h, w), not empty) after at most ``steps`` steps of region growing.

    An 8-neighbour is added if it lies in ``lungs`` (uint8 0/1) and its grey level in ``image`` (uint8) differs by at
    most ``tolerance`` from the original component's mean (not rounded). The component keeps all its pixels.
    """
    number = cv2.countNonZero(component)
    total = int(cv2.sumElems(image * component)[0])  # exact: a double holds every integer below 2 ** 53
    lowest = -((number * tolerance - total) // number)  # ceil(mean - tolerance)
    highest = (total + number * tolerance) // number
    allowed = cv2.inRange(image, max(lowest, 0), min(highest, 255)) & lungs
    allowed |= component
    grown = component
    for _ in range(steps):
        grown = cv2.dilate(grown, _SQUARE, borderType=cv2.BORDER_CONSTANT, borderValue=0) & allowed
        before, number = number, cv2.countNonZero(grown)
        if number == before:  # no pixel was added, and none is ever removed
            break
    return grown


def cut_closed_lungs(component: Region, closed: np.ndarray, open_: np.ndarray, min_px: int) -> Region | None:
    """Return a component without its pixels in closed lungs; None if too little of the component lies in open lungs.

    A lung is open for a finding if a box that adds to the finding's mask meets one of the finding's zones in this lung.
    Otherwise the lung is closed. ``closed`` and ``open_`` are uint8 maps of the closed and the open lungs. Pixels where
    both lungs overlap are open. A component that meets ``closed`` needs ``min_px`` pixels, at least one, in ``open_``.
    """
    lost = component.patch & closed[component.place]
    if not lost.any():
        return component
    if np.count_nonzero(component.patch & open_[component.place]) < max(min_px, 1):
        return None
    return component._replace(patch=component.patch & (1 - lost))


def crop_to_base(lung: np.ndarray, share: Fraction) -> np.ndarray:
    """Return the lowest rows of a lung mask (uint8 0/1): the fraction ``share`` of the lung's height, rounded down."""
    rows = np.flatnonzero(lung.any(axis=1))
    part = np.zeros_like(lung)
    if len(rows):
        height = int(rows[-1] - rows[0]) + 1
        first = int(rows[-1]) + 1 - int(height * share)
        part[first:] = lung[first:]
    return part
