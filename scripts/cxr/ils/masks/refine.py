"""Refine components (ils.md section 5: the paper's words, our numbers).

Order: small components are dropped; each other component grows, from its ungrown pixels and their mean; parts in a lung
without a productive box are cut; effusion is filled down to the lung base. All but the last two steps depend only on
the component, so they are done once for all boxes, findings and threshold sets.
"""

from fractions import Fraction
from typing import NamedTuple

import cv2
import numpy as np

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
    ``tolerance`` of the mean of the ungrown component, compared without rounding. The component itself stays whole.
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
        if number == before:  # it never shrinks
            break
    return grown


def cut_closed_lungs(component: Region, closed: np.ndarray, open_: np.ndarray, min_px: int) -> Region | None:
    """Cut the pixels of a component that lie in a closed lung.

    A lung is open if a label of its side has a productive box, else closed. ``closed`` and ``open_`` are uint8 maps of
    these lungs' pixels (a pixel of both is open). A component without a pixel in ``closed`` stays as it is. Of any
    other component only the pixels outside ``closed`` stay, and only if at least ``min_px`` of it (and at least one)
    lie in ``open_``.
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
