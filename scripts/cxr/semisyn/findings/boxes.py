"""Draw boxes in lungs, and larger hearts, from priors. Units: percent of the lung's box, x from its lateral edge."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cxr.semisyn.findings.catalogue import RATIO, SINGLES, Prior
from cxr.semisyn.findings.laws import draw_pair_within, draw_within

ROUNDING = 4 * np.spacing(200.0)
"""Percent by which an upper bound is lowered, so that rounding never puts a box beyond it."""


@dataclass(frozen=True)
class Places:
    """Places for N boxes. lungs, hearts, pictures: (N, 4: x1, y1, x2, y2) in frame pixels, the boxes of the organs and
    of the image in the frame; left: bool (N,), whether the lung is a left one; zones: (N, 4: x1, y1, x2, y2) in percent
    of the lung's box, in which the centre of the box must lie."""

    lungs: np.ndarray
    pictures: np.ndarray
    hearts: np.ndarray
    left: np.ndarray
    zones: np.ndarray

    def rows(self, indices: np.ndarray) -> "Places":
        """Return the places at ``indices``."""
        return Places(*(values[indices] for values in vars(self).values()))


class DrawnBoxes(NamedTuple):
    """Drawn boxes. percent: (N, 4: centre x, centre y, width, height) in percent of the lung's box; boxes: (N, 4) in
    frame pixels; mass: (N, 2), probability of the allowed range under the priors of centre and size; tries: (N,),
    number of the successful try, 0 for none."""

    percent: np.ndarray
    boxes: np.ndarray
    mass: np.ndarray
    tries: np.ndarray


def overshoot_limits(prior: Prior, places: Places, bounds: str) -> np.ndarray:
    """Return how far each box may extend beyond its lung's box: (N, 4: lateral, top, medial, bottom) in percent, as
    numbers ≤ 0. ``bounds``: ``strict`` (all are 0), or ``repo`` (limits of the prior, within the image)."""
    if bounds == "strict":
        return np.zeros((len(places.left), 4))
    lungs, pictures = places.lungs, places.pictures
    size = np.tile(lungs[:, 2:] - lungs[:, :2], 2)
    free = np.concatenate([lungs[:, :2] - pictures[:, :2], pictures[:, 2:] - lungs[:, 2:]], 1)
    free = np.where(places.left[:, None], free[:, [2, 1, 0, 3]], free) * 100 / size
    return np.maximum(-np.maximum(free, 0.0), np.array(prior.overshoot))


def size_bounds(prior: Prior, centres: np.ndarray, outside: np.ndarray, bounds: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the smallest and the largest (width, height) of boxes with ``centres``, both (N, 2) in percent.
    ``outside``: result of :func:`overshoot_limits`. A box that must cover the lung's lower edge at least reaches this
    edge. If ``bounds`` is "strict", such a box may extend beyond the edge, because it is cut at the edge later."""
    low = np.tile(np.array(prior.minimum), (len(centres), 1))
    high = 2 * np.minimum(centres - outside[:, :2], 100 - (centres + outside[:, 2:])) - ROUNDING
    if prior.covers_bottom:
        low[:, 1] = np.maximum(low[:, 1], 2 * (100 - centres[:, 1]))
        if bounds == "strict":
            high[:, 1] = 2 * centres[:, 1] - ROUNDING
    return low, high


def to_frame(percent: np.ndarray, places: Places) -> np.ndarray:
    """Return boxes (N, 4) in frame pixels, clipped to the image. ``percent``: (N, 4), see :class:`DrawnBoxes`."""
    centre, half = percent[:, :2], percent[:, 2:] / 2
    low, high = centre - half, centre + half
    flip = places.left[:, None] & np.array([True, False])
    low, high = np.where(flip, 100 - high, low), np.where(flip, 100 - low, high)
    start, size = places.lungs[:, :2], places.lungs[:, 2:] - places.lungs[:, :2]
    boxes = np.concatenate([start + low / 100 * size, start + high / 100 * size], axis=1)
    return np.clip(boxes, np.tile(places.pictures[:, :2], 2), np.tile(places.pictures[:, 2:], 2))


def draw_boxes(
    prior: Prior, places: Places, uniforms: np.ndarray, *, bounds: str, min_mass: float, heart_exclusion: bool
) -> DrawnBoxes:
    """Draw a box for each place from ``uniforms`` (N, tries, 4) in [0, 1). A try fails if the prior's probability of
    the allowed range is below ``min_mass``, or if the smallest size has no room. With ``heart_exclusion``, a box of a
    left lung that lies inside the heart's box fails too. ``bounds``: see :func:`overshoot_limits`."""
    count, tries = uniforms.shape[:2]
    percent, boxes = np.full((2, count, 4), np.nan)
    drawn_boxes = DrawnBoxes(percent, boxes, np.zeros((count, 2)), np.zeros(count, int))
    waiting = np.flatnonzero(_has_area(places.lungs))
    for number in range(tries):
        if not waiting.size:
            break
        part, numbers = places.rows(waiting), uniforms[waiting, number]
        centres, centre_mass = _draw_element(prior, "center", numbers[:, :2], part.zones[:, :2], part.zones[:, 2:])
        low, high = size_bounds(prior, centres, overshoot_limits(prior, part, bounds), bounds)
        sizes, size_mass = _draw_element(prior, "size", numbers[:, 2:], low, high)
        size_mass[(high < np.array(prior.minimum)).any(axis=1)] = 0.0
        percent, mass = np.concatenate([centres, sizes], axis=1), np.stack([centre_mass, size_mass], axis=1)
        boxes = to_frame(percent, part)
        if prior.covers_bottom and bounds == "strict":
            boxes[:, 3] = np.minimum(boxes[:, 3], part.lungs[:, 3])
        good = (mass >= max(min_mass, np.finfo(float).tiny)).all(axis=1) & (boxes[:, :2] < boxes[:, 2:]).all(axis=1)
        if heart_exclusion:
            hidden = (boxes[:, :2] >= part.hearts[:, :2]).all(axis=1) & (boxes[:, 2:] <= part.hearts[:, 2:]).all(axis=1)
            good &= ~(part.left & hidden)
        tried = DrawnBoxes(percent, boxes, mass, np.full(len(waiting), number + 1))
        for target, values in zip(drawn_boxes, tried, strict=True):
            target[waiting[good]] = values[good]
        waiting = waiting[~good]
    return drawn_boxes


def _draw_element(
    prior: Prior, name: str, uniforms: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw the element ``name`` (center or size) within bounds. Return values (N, 2) and the bounds' mass (N,)."""
    if name in prior.laws:
        return draw_pair_within(prior.laws[name], uniforms, low, high)
    (first, first_mass), (second, second_mass) = (
        draw_within(prior.laws[element], uniforms[:, k], low[:, k], high[:, k])
        for k, element in enumerate(SINGLES[name])
    )
    return np.stack([first, second], axis=1), first_mass * second_mass


def _has_area(boxes: np.ndarray) -> np.ndarray:
    return np.isfinite(boxes).all(axis=1) & (boxes[:, :2] < boxes[:, 2:]).all(axis=1)


class DrawnHearts(NamedTuple):
    """Enlarged hearts. ratios: (N, 2), cardiothoracic ratios before and after. Other fields: see DrawnBoxes."""

    ratios: np.ndarray
    boxes: np.ndarray
    mass: np.ndarray
    tries: np.ndarray


@dataclass(frozen=True)
class Chests:
    """Boxes (N, 4: x1, y1, x2, y2) in frame pixels of both lungs, the heart and the image within the frame."""

    right: np.ndarray
    left: np.ndarray
    hearts: np.ndarray
    pictures: np.ndarray


def draw_hearts(prior: Prior, chests: Chests, uniforms: np.ndarray, *, step: float, min_mass: float) -> DrawnHearts:
    """Draw a larger cardiothoracic ratio for each chest, at least ``step`` (a fraction) above the present one. The
    heart keeps its centre and aspect ratio. A try of ``uniforms`` (N, tries) fails if the heart reaches beyond a
    lung's outer edge."""
    right_edge, left_edge, hearts = chests.right[:, 0], chests.left[:, 2], chests.hearts
    thorax = left_edge - right_edge
    size, centre = hearts[:, 2:] - hearts[:, :2], (hearts[:, :2] + hearts[:, 2:]) / 2
    before, aspect = (
        np.divide(above, below, out=np.full(len(above), np.inf), where=below > 0)
        for above, below in ((size[:, 0], thorax), (size[:, 1], size[:, 0]))
    )
    low = np.maximum(prior.minimum[0], 100 * (before + step))
    ratios, mass = draw_within(prior.laws[RATIO], uniforms, low[:, None], np.array(100.0))
    half = (ratios / 100 * thorax[:, None] / 2)[..., None] * np.stack([np.ones(len(low)), aspect], axis=1)[:, None]
    boxes = np.concatenate([centre[:, None] - half, centre[:, None] + half], axis=2)
    good = (mass >= max(min_mass, np.finfo(float).tiny)) & (low <= 100)[:, None] & _has_area(hearts)[:, None]
    good &= (boxes[..., 0] >= right_edge[:, None]) & (boxes[..., 2] <= left_edge[:, None])
    rows, first = np.flatnonzero(good.any(axis=1)), good.argmax(axis=1)[good.any(axis=1)]
    drawn_hearts = DrawnHearts(np.full((len(low), 2), np.nan), np.full((len(low), 4), np.nan), *np.zeros((2, len(low))))
    drawn_hearts.ratios[:, 0], drawn_hearts.ratios[rows, 1] = before, ratios[rows, first] / 100
    lowest, highest = (np.tile(edges, 2) for edges in np.hsplit(chests.pictures[rows], 2))
    drawn_hearts.boxes[rows], drawn_hearts.mass[rows] = np.clip(boxes[rows, first], lowest, highest), mass[rows, first]
    return drawn_hearts._replace(tries=np.where(good.any(axis=1), good.argmax(axis=1) + 1, 0))
