"""Deriving the masks of the 15 zone labels (lungs, lung zones and lobes) from two lung masks by geometry.

Each lung pixel has the coordinates ``depth`` and ``lateral``. Depth is 0 at the apex and 1 at the base, along the mean
of the long axes of both lungs, so that zones follow a tilted patient. Lateral is 0 at the medial and 1 at the lateral
edge. The four zones are bands of depth that do not overlap. Lobes overlap, as in CXAS. Their borders are straight lines
from the medial to the lateral edge. Pixels that no other lobe covers belong to the lower lobe.
"""

import math

import numpy as np

from cxr.base.vocabulary import LUNGS, ZONE_LABELS, side_of, zones_of

ZONE_ENDS = (0.17, 0.42, 0.68)  # depth at which apical, upper and mid zone end; our choice, like all limits below
RIGHT_UPPER_END = (0.50, 0.55)  # depth of the minor fissure, where the right upper lobe ends (medial, lateral)
MIDDLE_END = (0.95, 0.70)  # depth at which the middle lobe ends (medial, lateral)
LEFT_UPPER_END = (0.80, 0.62)  # depth at which the left upper lobe, lingula included, ends (medial, lateral)
LOWER_BEGIN = (0.38, 0.55)  # depth at which both lower lobes begin; they overlap the other lobes (medial, lateral)
MAX_TILT = 15.0  # maximum tilt of the chest that the zones follow, degrees


def _axis_angle(mask: np.ndarray) -> float | None:
    """Return the angle of a mask's long axis to the vertical, radians, positive if its lower end is further right."""
    ys, xs = np.nonzero(mask)
    if xs.size < 3:
        return None
    covariance = np.cov(np.stack([xs, ys]).astype(np.float64))
    # Closed form of the first principal axis of a 2 x 2 matrix, measured from the y axis.
    return 0.5 * math.atan2(2 * covariance[0, 1], covariance[1, 1] - covariance[0, 0])


def chest_tilt(right_lung: np.ndarray, left_lung: np.ndarray) -> float:
    """Return the mean tilt of both lungs, radians, limited to ±``MAX_TILT`` degrees; 0 if a lung is missing."""
    angles = [_axis_angle(right_lung), _axis_angle(left_lung)]
    if None in angles:
        return 0.0
    limit = math.radians(MAX_TILT)
    return min(limit, max(-limit, sum(angles) / 2))


def _scale_to_unit(values: np.ndarray) -> np.ndarray:
    span = float(values.max() - values.min())
    return (values - values.min()) / span if span > 0 else np.zeros_like(values)


def lung_coordinates(mask: np.ndarray, side: str, tilt: float) -> tuple[tuple, np.ndarray, np.ndarray]:
    """Return ((rows, columns), depth, lateral) of a lung's N pixels. Both coordinates are float64 (N,).

    Depth is 0 at the apex and 1 at the base, lateral 0 at the medial edge and 1 at the other. ``tilt``: radians.
    """
    ys, xs = np.nonzero(mask)
    # Rounding makes ties at a border equal on every machine.
    depth = np.round(ys * math.cos(tilt) + xs * math.sin(tilt), 6)
    across = np.round(xs * math.cos(tilt) - ys * math.sin(tilt), 6)
    return (ys, xs), _scale_to_unit(depth), _scale_to_unit(-across if side == "right" else across)


def _border_depth(ends: tuple[float, float], lateral: np.ndarray) -> np.ndarray:
    return ends[0] + (ends[1] - ends[0]) * lateral


def lobe_masks(side: str, depth: np.ndarray, lateral: np.ndarray) -> dict[str, np.ndarray]:
    """Return {lobe: bool (N,)} for one lung: which of its N pixels, given by their coordinates, lie in the lobe."""
    lower = depth >= _border_depth(LOWER_BEGIN, lateral)
    upper = depth < _border_depth(RIGHT_UPPER_END if side == "right" else LEFT_UPPER_END, lateral)
    middle = ~upper & (depth < _border_depth(MIDDLE_END, lateral)) & (side == "right")
    masks = {f"lung lower lobe {side}": lower | ~(upper | middle), f"lung upper lobe {side}": upper}
    return masks | ({"lung middle lobe right": middle} if side == "right" else {})


def zone_masks(right_lung: np.ndarray, left_lung: np.ndarray) -> dict[str, np.ndarray]:
    """Return {label: bool (H, W)} in the order of ``ZONE_LABELS``. A pixel that is in both lungs counts for both."""
    tilt = chest_tilt(right_lung, left_lung)
    masks = {label: np.zeros(right_lung.shape, bool) for label in ZONE_LABELS}
    for lung, mask in zip(LUNGS, (right_lung, left_lung), strict=True):
        if not mask.any():
            continue
        side = side_of(lung)
        pixels, depth, lateral = lung_coordinates(mask, side, tilt)
        masks[lung] = mask.astype(bool)
        band = np.searchsorted(np.asarray(ZONE_ENDS, np.float64), depth, side="right")
        inside_by_zone = {name: band == index for index, name in enumerate(zones_of(side))}
        for name, inside in (inside_by_zone | lobe_masks(side, depth, lateral)).items():
            masks[name][pixels] = inside
    return masks
