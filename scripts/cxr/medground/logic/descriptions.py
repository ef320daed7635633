"""Descriptions that come with images: cleaned, parsed if they have a known form, and compared with the masks.

Known forms, of LViT's datasets and of its copy of MoNuSeg:

    (bilateral|unilateral) pulmonary infection, NUMBER infected area(s), PLACE[, PLACE]* [and PLACE].
    PLACE = all, or one or more of upper, middle, lower; then left or right lung

    The nuclei density in the upper right is high.
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
"""{level in a description: its word in a zone's name}."""
_INFECTION = re.compile(
    r"(?:bilateral|unilateral) pulmonary infection, (\w+) infected areas?, (.+?)\.?$", re.IGNORECASE
)
_PLACE = re.compile(r"((?:all|upper|middle|lower)(?: (?:upper|middle|lower))*) (left|right) lung", re.IGNORECASE)
_DENSITY = re.compile(r"the nuclei density in the (upper|lower)?\s?(left|right)? is high\.?$", re.IGNORECASE)


@dataclass(frozen=True)
class Description:
    """number: infected areas, None if not stated; places: (levels, side), sides of the patient in LViT's form."""

    number: int | None
    places: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def sides(self) -> set[str]:
        """The sides that are named."""
        return {side for _, side in self.places if side}

    @property
    def names_patient_sides(self) -> bool:
        """Whether the form is LViT's, with a number of areas and sides of the patient."""
        return self.number is not None and bool(self.sides)


def parse_description(text: str) -> Description | None:
    """Return the content of a description; None if it has no known form."""
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
    """Return the patient's side of a column in radiological orientation: the image's left is the patient's right."""
    return "right" if x < middle else "left"


def description_faults(read: Description, sides: Sequence[str]) -> list[str]:
    """Return which of "side" and "number" a description has wrong. ``sides``: the patient's side of each region."""
    wrong = {"side": read.sides != set(sides), "number": read.number != len(sides)}
    return [name for name, is_wrong in wrong.items() if is_wrong]


def described_zones(read: Description, sides: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Return {zone: fraction of each region in it, float (N,), NaN: unknown} that a description implies.

    Empty if its sides or number contradict the regions. If a region is alone on its side and the description gives one
    level there, that is its zone; of several levels each is unknown. For regions that share a side, only the zones of
    the other side are known (0).
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
"""Longest description, in characters; the rest is cut off."""
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean_description(text: str) -> tuple[str, str]:
    """Return (cleaned text, state) of a description: none, refused (it addresses a model), read (known form) or unread.

    The text is neutralized and at most :data:`LONGEST` characters; a refused one is empty.
    """
    plain = " ".join(neutralize(_INVISIBLE.sub("", text)).split())
    if not plain:
        return "", "none"
    if addresses_the_model(text, FIELDS) or addresses_the_model(plain, FIELDS):
        return "", "refused"
    plain = plain[:LONGEST].rstrip()
    return plain, "unread" if parse_description(plain) is None else "read"


def mask_sides(masks: Mapping[str, np.ndarray]) -> set[str]:
    """Return the patient's sides on which the components of masks, bool (H, W), have their centroids."""
    sides: set[str] = set()
    for mask in masks.values():
        _, _, _, centroids = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
        sides |= {patient_side(x + 0.5, mask.shape[1] / 2) for x, _ in centroids[1:].tolist()}
    return sides


def sides_disagree(text: str, masks: Mapping[str, np.ndarray], radiological: bool) -> bool | None:
    """Return whether a description's sides differ from those of the masks.

    None if it states none: another form, or an image whose sides are unknown.
    """
    read = parse_description(text)
    if read is None or not read.names_patient_sides or not radiological:
        return None
    return read.sides != mask_sides(masks)
