"""What a description of a known form says: how many areas, and in which places.

    (bilateral|unilateral) pulmonary infection, NUMBER infected area(s), PLACE[, PLACE]* [and PLACE].
    PLACE = all, or one or more of upper, middle, lower; then left or right lung

A tree of MoNuSeg says instead: "The nuclei density in the upper right is high."
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import cv2
import numpy as np

from cxr.base.vocabulary import SIDES
from cxr.llm.guards import addresses_the_model, neutralize
from cxr.medground.logic.text import FIELDS

NUMBERS = {
    name: number
    for number, name in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
}
LEVELS = {"upper": "upper", "middle": "mid", "lower": "lower"}
"""{level in a description: its word in the name of a zone}."""
_INFECTION = re.compile(
    r"(?:bilateral|unilateral) pulmonary infection, (\w+) infected areas?, (.+?)\.?$", re.IGNORECASE
)
_PLACE = re.compile(r"((?:all|upper|middle|lower)(?: (?:upper|middle|lower))*) (left|right) lung", re.IGNORECASE)
_DENSITY = re.compile(r"the nuclei density in the (upper|lower)?\s?(left|right)? is high\.?$", re.IGNORECASE)


@dataclass(frozen=True)
class Description:
    """number: infected areas, None if not told; places: (levels, side); the side is the patient's in LViT's form."""

    number: int | None
    places: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def sides(self) -> set[str]:
        """The sides that it names."""
        return {side for _, side in self.places if side}

    @property
    def names_patient_sides(self) -> bool:
        """Whether its sides are the patient's, and it counts the areas."""
        return self.number is not None and bool(self.sides)


def parse_description(text: str) -> Description | None:
    """Return what a description says, None where it is not of a known form."""
    if match := _DENSITY.fullmatch(text.strip()):
        level, side = (part.lower() if part else "" for part in match.groups())
        return Description(None, (((level,) if level else (), side),)) if level or side else None
    match = _INFECTION.fullmatch(text.strip())
    if not match:
        return None
    number = NUMBERS.get(match[1].lower()) or (int(match[1]) if match[1].isdigit() else None)
    parts = [part for part in re.split(r",\s*(?:and\s+)?|\s+and\s+", match[2]) if part]
    places = [_PLACE.fullmatch(part.strip()) for part in parts]
    if number is None or not places or not all(places):
        return None
    return Description(number, tuple((_levels(place[1]), place[2].lower()) for place in places))


def _levels(words: str) -> tuple[str, ...]:
    return tuple(LEVELS) if words.lower() == "all" else tuple(words.lower().split())


def patient_side(x: float, middle: float) -> str:
    """Return the patient's side of a place of a radiological image: its left is the patient's right."""
    return "right" if x < middle else "left"


def description_faults(read: Description, sides: Sequence[str]) -> list[str]:
    """Return what a description has wrong of regions, whose patient's ``sides`` are given: side, number."""
    wrong = {"side": read.sides != set(sides), "number": read.number != len(sides)}
    return [name for name, is_wrong in wrong.items() if is_wrong]


def described_zones(read: Description, sides: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Return {zone: share of each region in it, float (N,), NaN: unknown} that a description tells.

    Empty unless its sides and number are the regions'. A place tells the zone of a region that is alone on its side:
    one level is its zone, of several levels each is unclear, and no other level is its. Of regions that share a side
    only the other side's zones are known.
    """
    alone = [side for side in SIDES if list(sides).count(side) == 1]
    if description_faults(read, sides) or not alone:
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


LONGEST = 600
"""Characters of a description that are kept."""
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean_description(text: str) -> tuple[str, str]:
    """Return (text, state) of a description: none, refused (it speaks to a model), read (LViT's form) or unread.

    The text is harmless and at most :data:`LONGEST` characters; that of a refused one is empty.
    """
    plain = " ".join(neutralize(_INVISIBLE.sub("", text)).split())
    if not plain:
        return "", "none"
    if addresses_the_model(text, FIELDS) or addresses_the_model(plain, FIELDS):
        return "", "refused"
    plain = plain[:LONGEST].rstrip()
    return plain, "unread" if parse_description(plain) is None else "read"


def mask_sides(masks: Mapping[str, np.ndarray]) -> set[str]:
    """Return the patient's sides of the centroids of masks' components, bool (H, W)."""
    sides: set[str] = set()
    for mask in masks.values():
        _, _, _, centroids = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
        sides |= {patient_side(x + 0.5, mask.shape[1] / 2) for x, _ in centroids[1:].tolist()}
    return sides


def sides_disagree(text: str, masks: Mapping[str, np.ndarray], radiological: bool) -> bool | None:
    """Return whether a description names a side without a mask, or leaves one with a mask out.

    None where it does not tell: no known form, no side of a body, or sides that are unknown.
    """
    read = parse_description(text)
    if read is None or not read.names_patient_sides or not radiological:
        return None
    return read.sides != mask_sides(masks)
