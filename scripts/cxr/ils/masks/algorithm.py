"""Pixel operations of Algorithm 1 (paper A.3) and of the refinement of its components (A.5).

Maps and masks are uint8 (H, W) of 0 and 1; boxes are half-open pixel boxes int64 (N, 4: x1, y1, x2, y2).
"""

from fractions import Fraction
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.vocabulary import BOX_CONDITIONS
from cxr.ils.masks.thresholds import Ratio

CONDITION_BITS = {name: 1 << bit for bit, name in enumerate(BOX_CONDITIONS)}
"""Bit of each failed condition in a box's verdict for one finding. A verdict of 0 means a productive box."""

_CROSS = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))


class Components(NamedTuple):
    """8-connected components: ``labels`` (H, W), 0 is background, in the smallest integer type that fits."""

    labels: np.ndarray

    def extent(self, label: int) -> tuple[int, tuple[int, int, int, int]]:
        """Return the number of pixels of a component and its half-open bounding box.

        Components are measured on demand: few meet a productive box, and measuring all takes six times as long as
        finding them.
        """
        component_mask = (self.labels == label).view(np.uint8)
        x, y, width, height = cv2.boundingRect(component_mask)
        return cv2.countNonZero(component_mask), (x, y, x + width, y + height)

    def find_touching(self, box: np.ndarray) -> list[int]:
        """Return the labels of the components that share a pixel with a box (x1, y1, x2, y2), sorted."""
        x1, y1, x2, y2 = box
        box_labels = self.labels[y1:y2, x1:x2].ravel()
        # one pixel per run of equal labels is enough
        starts = box_labels[1:][box_labels[1:] != box_labels[:-1]]
        return sorted({*box_labels[:1].tolist(), *starts.tolist()} - {0})


def apply_opening(binary: np.ndarray) -> np.ndarray:
    """Open once with a 3x3 cross. Outside the map is background, so the border erodes too."""
    eroded = cv2.erode(binary, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return cv2.dilate(eroded, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)


def find_components(binary: np.ndarray) -> Components:
    """Return the 8-connected components of a map."""
    height, width = binary.shape
    # OpenCV starts at most one label per block of 2 x 2 pixels while it scans
    most = -(-height // 2) * -(-width // 2)
    kind = cv2.CV_16U if most < 2**16 else cv2.CV_32S
    return Components(cv2.connectedComponents(binary, connectivity=8, ltype=kind)[1])


def index_corners(boxes: np.ndarray, width: int) -> np.ndarray:
    """Return the boxes' corners, int64 (4, N), as indexes into a summed-area table of ``width`` columns."""
    x1, y1, x2, y2 = boxes.T
    return np.stack([y2, y1, y2, y1]) * (width + 1) + np.stack([x2, x2, x1, x1])


def count_pixels_in_boxes(binary: np.ndarray, corner_indexes: np.ndarray) -> np.ndarray:
    """Return the pixels of ``binary`` in each box, int64 (N,); ``corner_indexes``: of :func:`index_corners`."""
    if not corner_indexes.size:
        return np.zeros(0, np.int64)
    corner_sums = cv2.integral(binary).ravel()[corner_indexes].astype(np.int64)
    return corner_sums[0] - corner_sums[1] - corner_sums[2] + corner_sums[3]


def compute_box_iou(area: np.ndarray, shared: np.ndarray, mask_area: int) -> Ratio:
    """Return the IoU of boxes of ``area`` pixels, ``shared`` with a mask of ``mask_area``; 0 for an empty mask."""
    return Ratio(shared, area + mask_area - shared if mask_area > 0 else np.zeros_like(area))


def flag_failures(condition: str, holds: np.ndarray) -> np.ndarray:
    """Return uint8 (N,): the bit of a condition where it fails, 0 where it ``holds`` (bool (N,))."""
    return np.where(holds, np.uint8(0), np.uint8(CONDITION_BITS[condition]))


_SQUARE = np.ones((3, 3), np.uint8)


class Region(NamedTuple):
    """A patch of a mask: uint8 (h, w) of 0 and 1 with its upper left corner in the map."""

    y: int
    x: int
    patch: np.ndarray

    @property
    def place(self) -> tuple[slice, slice]:
        """Where the patch lies in the map."""
        height, width = self.patch.shape
        return slice(self.y, self.y + height), slice(self.x, self.x + width)


def grow_component(
    component: np.ndarray, image: np.ndarray, lungs: np.ndarray, tolerance: int, steps: int
) -> np.ndarray:
    """Grow a component (uint8 0/1 (h, w), not empty) into 8-neighbours, ``steps`` times at most.

    A neighbour joins if it lies in ``lungs`` (uint8 0/1) and its grey level in ``image`` (uint8) is within
    ``tolerance`` of the mean of the original component, compared without rounding. No pixel of the component is lost.
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
        if number == before:  # it only grows
            break
    return grown


def cut_closed_lungs(component: Region, closed: np.ndarray, open_: np.ndarray, min_px: int) -> Region | None:
    """Cut the pixels of a component that lie in a closed lung.

    A lung is open if a label of its side has a productive box, else closed. ``closed`` and ``open_`` are uint8 maps of
    these lungs; a pixel of both counts as open. A component without a pixel in ``closed`` is returned unchanged. Any
    other component loses its pixels in ``closed``; None if fewer than ``min_px`` of it (or none) lie in ``open_``.
    """
    lost = component.patch & closed[component.place]
    if not lost.any():
        return component
    if np.count_nonzero(component.patch & open_[component.place]) < max(min_px, 1):
        return None
    return component._replace(patch=component.patch & (1 - lost))


def crop_to_base(lung: np.ndarray, share: Fraction) -> np.ndarray:
    """Return the part of a lung mask (uint8 0/1) in the lowest ``share`` of its height, in whole rows, rounded down."""
    rows = np.flatnonzero(lung.any(axis=1))
    part = np.zeros_like(lung)
    if len(rows):
        height = int(rows[-1] - rows[0]) + 1
        first = int(rows[-1]) + 1 - int(height * share)
        part[first:] = lung[first:]
    return part
