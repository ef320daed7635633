"""Which queries keep their answer when every region's outline lies a few pixels further out, or further in.

The moved regions are computed from the table of regions, without pixels. The outline of a mask is uncertain by about a
pixel, and the rim of that width is over 15 % of the area of what is less than 27 px wide.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from cxr.medground.logic.decide import Decider, Query
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.options import LogicOptions
from cxr.medground.logic.table import scene_of

SQUARE = 4 / np.pi
"""How much longer an outline is in steps along the axes than in straight lines, the mean over its directions."""
ROBUST = 3
"""The grade of a query that keeps its answer: as they are, further out and further in."""
DRIFT = 0.5
"""How far a centroid moves at most, as a fraction of the outline's way: of a region that grows on one side alone."""


class Outlines:
    """Tells whether a query of one image is robust: decidable with the same answer, wherever the outlines lie.

    ``px``: how far all of them may lie further out, or further in; 0: every query is robust.
    """

    def __init__(
        self, image: Mapping, rows: Sequence[Mapping], facts: Facts, side: int, numbers: LogicOptions, px: float
    ):
        wary = _wary(numbers, DRIFT * px / side)
        self._deciders = [
            Decider(scene_of(image, moved(rows, image["extent"], by), facts, side), wary)
            for by in ((0.0, px, -px) if px else ())
        ]

    def grade(self, query: Query, target: tuple[int, ...]) -> int:
        """Return ROBUST where the answer of a query is ``target`` for every outline.

        Else for how many outlines it is, and -1 where another answer is for one: worse than none.
        """
        found = [decider.answer(query) for decider in self._deciders]
        kept = sum(one.decidable and one.selected == target for one in found)
        if kept == len(found):
            return ROBUST
        return kept if all(not one.decidable or one.selected == target for one in found) else -1


def _wary(numbers: LogicOptions, drift: float) -> LogicOptions:
    """Return the numbers of the logic with margins of places that also hold for moved centroids."""
    names = ("position_margin", "position_gap", "relation_gap")
    return replace(numbers, **{name: getattr(numbers, name) + drift for name in names})


def moved(rows: Sequence[Mapping], extent: Sequence[int], px: float) -> list[dict]:
    """Return the regions' rows with every outline ``px`` further out, or further in where it is negative.

    Box, area, elongation, solidity, contrast and texture change; a centroid and shares in other masks stay. extent:
    (left, top, right, bottom) of the picture in its frame, px.
    """
    if not rows or not px:
        return [dict(row) for row in rows]
    held = {name: _column(rows, name) for name in ("x1", "y1", "x2", "y2", *MEASURES)}
    edges = _edges(held, extent, px)
    steps = 2 * (held["x2"] - held["x1"] + held["y2"] - held["y1"])
    # a square as wide as the way passes along the outline: exact for pixels without gaps in any row or column
    rim = steps + 4 * px
    if px > 0:  # bays make an outline longer than its box's; eroded, they are no longer than it
        length = np.sqrt(4 * np.pi * held["area"] / held["compactness"])
        rim = np.fmax(rim, SQUARE * length)
    area = np.maximum(held["area"] + px * rim, 1.0)
    hull = np.maximum(held["area"] / held["solidity"] + px * (steps + 4 * px), area)
    contrast, texture = _looks(held, area)
    new = {
        **edges,
        "area": area,
        "area_ratio": held["area_ratio"] * area / held["area"],
        "elongation": _elongation(held, px),
        "solidity": area / hull,
        "contrast": contrast,
        "texture": texture,
    }
    named = list(new)
    values = zip(*(new[name].tolist() for name in named), strict=True)
    return [{**row, **dict(zip(named, one, strict=True))} for row, one in zip(rows, values, strict=True)]


MEASURES = ("area", "area_ratio", "elongation", "solidity", "compactness", "contrast", "texture")


def _column(rows: Sequence[Mapping], name: str) -> np.ndarray:
    return np.array([np.nan if row[name] is None else row[name] for row in rows], np.float64)


def _edges(held: Mapping[str, np.ndarray], extent: Sequence[int], px: float) -> dict[str, np.ndarray]:
    """Return the boxes' edges, which stay inside the picture, and at its edge where they touch it."""
    found = {}
    for name, edge, way in zip(("x1", "y1", "x2", "y2"), extent, (-1, -1, 1, 1), strict=True):
        further = held[name] + way * px
        further = np.maximum(further, edge) if way < 0 else np.minimum(further, edge)
        found[name] = np.where(held[name] == edge, edge, further)
    return found


def _elongation(held: Mapping[str, np.ndarray], px: float) -> np.ndarray:
    """Return the elongation of ellipses of the regions' areas and elongations whose half axes are longer by ``px``."""
    long = np.sqrt(held["area"] / np.pi / (1 - held["elongation"]))
    short = long * (1 - held["elongation"])
    way = SQUARE * px
    return 1 - np.maximum(short + way, 0.1) / np.maximum(long + way, 0.1)


def _looks(held: Mapping[str, np.ndarray], area: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return contrast and texture where the rim's pixels look like the side that they were on before.

    Inside and ring are told by a mean and an SD each; in units of the ring's SD. What is mixed of two such parts has
    the variance of a mixture.
    """
    spread, old = held["texture"], held["area"]
    apart = held["contrast"] * np.sqrt((spread**2 + 1) / 2)
    share = np.minimum(np.abs(area - old) / area, 1.0)
    mixture = share * (1 - share) * apart**2
    outwards = area > old
    inside = np.where(outwards, (1 - share) * spread**2 + share + mixture, spread**2)
    ring = np.where(outwards, 1.0, 1 - share + share * spread**2 + mixture)
    with np.errstate(divide="ignore", invalid="ignore"):  # an even speck that has moved away: NaN, unknown
        return (1 - share) * apart / np.sqrt((inside + ring) / 2), np.sqrt(inside / ring)
