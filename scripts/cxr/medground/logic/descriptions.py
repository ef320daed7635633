"""What a description of a known form says: how many areas, and in which places.

    (bilateral|unilateral) pulmonary infection, NUMBER infected area(s), PLACE[, PLACE]* [and PLACE].
    PLACE = all, or one or more of upper, middle, lower; then left or right lung

A tree of MoNuSeg says instead: "The nuclei density in the upper right is high."
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.base.vocabulary import SIDES

NUMBERS = {
    name: number
    for number, name in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
}
LEVELS = {"upper": "upper", "middle": "mid", "lower": "lower"}
"""{level in a description: its word in the name of a zone}."""
_WHOLE = re.compile(r"(?:bilateral|unilateral) pulmonary infection, (\w+) infected areas?, (.+?)\.?$", re.IGNORECASE)
_PLACE = re.compile(r"((?:all|upper|middle|lower)(?: (?:upper|middle|lower))*) (left|right) lung", re.IGNORECASE)
_DENSE = re.compile(r"the nuclei density in the (upper|lower)?\s?(left|right)? is high\.?$", re.IGNORECASE)


@dataclass(frozen=True)
class Read:
    """number: infected areas, None if not told; places: (levels, side); the side is the patient's in LViT's form."""

    number: int | None
    places: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def sides(self) -> set[str]:
        """The sides that it names."""
        return {side for _, side in self.places if side}

    @property
    def patients(self) -> bool:
        """Whether its sides are the patient's, and it counts the areas."""
        return self.number is not None and bool(self.sides)


def parsed(text: str) -> Read | None:
    """Return what a description says, None where it is not of a known form."""
    if match := _DENSE.fullmatch(text.strip()):
        level, side = (part.lower() if part else "" for part in match.groups())
        return Read(None, (((level,) if level else (), side),)) if level or side else None
    match = _WHOLE.fullmatch(text.strip())
    if not match:
        return None
    number = NUMBERS.get(match[1].lower()) or (int(match[1]) if match[1].isdigit() else None)
    parts = [part for part in re.split(r",\s*(?:and\s+)?|\s+and\s+", match[2]) if part]
    places = [_PLACE.fullmatch(part.strip()) for part in parts]
    if number is None or not places or not all(places):
        return None
    return Read(number, tuple((_levels(place[1]), place[2].lower()) for place in places))


def _levels(words: str) -> tuple[str, ...]:
    return tuple(LEVELS) if words.lower() == "all" else tuple(words.lower().split())


def patients_side(x: float, middle: float) -> str:
    """Return the patient's side of a place of a radiological image: its left is the patient's right."""
    return "right" if x < middle else "left"


def faults(read: Read, sides: Sequence[str]) -> list[str]:
    """Return what a description has wrong of regions, whose patient's ``sides`` are given: side, number."""
    wrong = {"side": read.sides != set(sides), "number": read.number != len(sides)}
    return [name for name, is_wrong in wrong.items() if is_wrong]


def described_zones(read: Read, sides: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Return {zone: share of each region in it, float (N,), NaN: unknown} that a description tells.

    Empty unless its sides and number are the regions'. A place tells the zone of a region that is alone on its side:
    one level is its zone, of several levels each is unclear, and no other level is its. Of regions that share a side
    only the other side's zones are known.
    """
    alone = [side for side in SIDES if list(sides).count(side) == 1]
    if faults(read, sides) or not alone:
        return {}
    levels = {
        side: {level for names, place_side in read.places if place_side == side for level in names} for side in SIDES
    }
    shares_by_zone = {}
    for side in SIDES:
        for level, word in LEVELS.items():
            share = np.nan if side not in alone or (level in levels[side] and len(levels[side]) > 1) else None
            share = float(level in levels[side]) if share is None else share
            shares_by_zone[f"{side} {word} zone lung"] = np.array(
                [share if region_side == side else 0.0 for region_side in sides]
            )
    return shares_by_zone
