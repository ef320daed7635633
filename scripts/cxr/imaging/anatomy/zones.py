"""Deriving the 15 zone labels from two lung masks by geometry.

A pixel of a lung has two coordinates: ``depth``, 0 at the apex and 1 at the base along the axis of the chest, and
``side``, 0 at the medial and 1 at the lateral edge. The axis is the mean of the two lungs' long axes, whose outward
slants cancel, so that the cuts follow a tilted patient.

The four zones are bands of depth and partition the lung. Lobes lie behind one another on a frontal film, so their masks
overlap, as in CXAS: each border is a straight line from the medial to the lateral edge. Pixels that no other lobe
covers belong to the lower lobe, so that every lung pixel is in at least one lobe.
"""

import math
from dataclasses import dataclass

import numpy as np

from cxr.base.errors import UserError
from cxr.base.vocabulary import LUNGS, ZONE_LABELS, side_of, zones_of

Line = tuple[float, float] | list[float]


@dataclass(frozen=True)
class Cuts:
    """Ends of zones and lobes, as fractions of the lung's height (0 apex, 1 base).

    ``zones``: end of apical, upper and mid zone. The others are lines, (medial, lateral).
    """

    zones: tuple[float, float, float] | list[float]
    right_upper_end: Line
    middle_end: Line
    left_upper_end: Line
    lower_begin: Line
    max_tilt: float

    def check(self) -> None:
        """Raise UserError unless the zone cuts increase."""
        if not 0 < self.zones[0] < self.zones[1] < self.zones[2] < 1:
            raise UserError(f"anatomy.zone_cuts is {list(self.zones)}: give three rising numbers between 0 and 1")


def _axis_angle(mask: np.ndarray) -> float | None:
    """Angle (radians) of a mask's long axis against the vertical, positive if its lower end points to the right."""
    ys, xs = np.nonzero(mask)
    if xs.size < 3:
        return None
    covariance = np.cov(np.stack([xs, ys]).astype(np.float64))
    # Closed form of the first principal axis of a 2 x 2 matrix, measured from the y axis.
    return 0.5 * math.atan2(2 * covariance[0, 1], covariance[1, 1] - covariance[0, 0])


def chest_tilt(right_lung: np.ndarray, left_lung: np.ndarray, max_tilt: float) -> float:
    """Return the tilt of the chest in radians, at most ``max_tilt`` degrees either way; 0 if a lung is missing."""
    angles = [_axis_angle(right_lung), _axis_angle(left_lung)]
    if None in angles:
        return 0.0
    limit = math.radians(max_tilt)
    return min(limit, max(-limit, sum(angles) / 2))


def _scale_to_unit(values: np.ndarray) -> np.ndarray:
    """Scale to 0..1; a single value becomes 0."""
    span = float(values.max() - values.min())
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def lung_coordinates(
    mask: np.ndarray, side: str, tilt: float
) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray, np.ndarray]:
    """Return a non-empty lung's pixels (rows, columns) and their ``depth`` and ``side`` coordinates, float64 (N,)."""
    ys, xs = np.nonzero(mask)
    # Rounding gives the same ties at a cut on every machine.
    depth = np.round(ys * math.cos(tilt) + xs * math.sin(tilt), 6)
    across = np.round(xs * math.cos(tilt) - ys * math.sin(tilt), 6)
    return (ys, xs), _scale_to_unit(depth), _scale_to_unit(-across if side == "right" else across)


def _border_depth(ends: Line, lateral: np.ndarray) -> np.ndarray:
    return ends[0] + (ends[1] - ends[0]) * lateral


def lobe_masks(side: str, depth: np.ndarray, lateral: np.ndarray, cuts: Cuts) -> dict[str, np.ndarray]:
    """Return {lobe: bool (N,)} of one lung's pixels."""
    lower = depth >= _border_depth(cuts.lower_begin, lateral)
    if side == "left":
        upper = depth < _border_depth(cuts.left_upper_end, lateral)
        return {"lung lower lobe left": lower | ~upper, "lung upper lobe left": upper}
    upper = depth < _border_depth(cuts.right_upper_end, lateral)
    middle = ~upper & (depth < _border_depth(cuts.middle_end, lateral))
    return {
        "lung lower lobe right": lower | ~(upper | middle),
        "lung middle lobe right": middle,
        "lung upper lobe right": upper,
    }


def zone_masks(right_lung: np.ndarray, left_lung: np.ndarray, cuts: Cuts) -> dict[str, np.ndarray]:
    """Return {label: bool (H, W)} for the 15 zone labels, in order. The labels of an empty lung are empty.

    A pixel in both lungs counts for both.
    """
    tilt = chest_tilt(right_lung, left_lung, cuts.max_tilt)
    masks = {label: np.zeros(right_lung.shape, bool) for label in ZONE_LABELS}
    for lung, mask in zip(LUNGS, (right_lung, left_lung), strict=True):
        if not mask.any():
            continue
        side = side_of(lung)
        pixels, depth, lateral = lung_coordinates(mask, side, tilt)
        masks[lung] = mask.astype(bool)
        band = np.searchsorted(np.asarray(cuts.zones, np.float64), depth, side="right")
        inside_by_zone = {name: band == index for index, name in enumerate(zones_of(side))}
        for name, inside in (inside_by_zone | lobe_masks(side, depth, lateral, cuts)).items():
            masks[name][pixels] = inside
    return masks
