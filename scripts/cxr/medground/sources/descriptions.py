"""What came with an image as text: made harmless, refused where it gives orders, and read where it follows LViT's form.

    (bilateral|unilateral) pulmonary infection, NUMBER infected area(s), PLACE[, PLACE]* [and PLACE].
    PLACE = all, or one or more of upper, middle, lower; then left or right lung

A tree of MoNuSeg says instead: "The nuclei density in the upper right is high."
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cxr.llm.guards import addresses_the_model, harmless
from cxr.medground.logic.text import FIELDS

LONGEST = 600
"""Characters of a description that are kept."""
NUMBERS = {
    name: number
    for number, name in enumerate(("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"), 1)
}
LEVELS = ("upper", "middle", "lower")
_WHOLE = re.compile(r"(?:bilateral|unilateral) pulmonary infection, (\w+) infected areas?, (.+?)\.?$", re.IGNORECASE)
_PLACE = re.compile(r"((?:all|upper|middle|lower)(?: (?:upper|middle|lower))*) (left|right) lung", re.IGNORECASE)
_DENSE = re.compile(r"the nuclei density in the (upper|lower)?\s?(left|right)? is high\.?$", re.IGNORECASE)
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


@dataclass(frozen=True)
class Read:
    """number: infected areas, None if not told; places: (levels, side); the side is the patient's in LViT's form."""

    number: int | None
    places: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def sides(self) -> set[str]:
        """The sides that it names."""
        return {side for _, side in self.places if side}


def kept(text: str) -> tuple[str, str]:
    """Return (text, state) of a description: none, refused (it speaks to a model), read (LViT's form) or unread.

    The text is harmless and at most :data:`LONGEST` characters; that of a refused one is empty.
    """
    plain = " ".join(harmless(_INVISIBLE.sub("", text)).split())
    if not plain:
        return "", "none"
    if addresses_the_model(text, FIELDS) or addresses_the_model(plain, FIELDS):
        return "", "refused"
    plain = plain[:LONGEST].rstrip()
    return plain, "unread" if parsed(plain) is None else "read"


def parsed(text: str) -> Read | None:
    """Return what a description says, None where it is not of a known form."""
    if found := _DENSE.fullmatch(text.strip()):
        level, side = (part.lower() if part else "" for part in found.groups())
        return Read(None, (((level,) if level else (), side),)) if level or side else None
    found = _WHOLE.fullmatch(text.strip())
    if not found:
        return None
    number = NUMBERS.get(found[1].lower()) or (int(found[1]) if found[1].isdigit() else None)
    parts = [part for part in re.split(r",\s*(?:and\s+)?|\s+and\s+", found[2]) if part]
    places = [_PLACE.fullmatch(part.strip()) for part in parts]
    if number is None or not places or not all(places):
        return None
    return Read(number, tuple((_levels(place[1]), place[2].lower()) for place in places))


def _levels(words: str) -> tuple[str, ...]:
    return LEVELS if words.lower() == "all" else tuple(words.lower().split())


def sides_of(masks: Mapping[str, np.ndarray]) -> set[str]:
    """Return the patient's sides on which masks, bool (H, W), have pixels; the image's left is the patient's right."""
    whole = np.any(np.stack(list(masks.values())), axis=0)
    half = whole.shape[1] // 2
    return {side for side, part in (("right", whole[:, :half]), ("left", whole[:, half:])) if part.any()}


def disagrees(text: str, masks: Mapping[str, np.ndarray], radiological: bool) -> bool | None:
    """Return whether a description names a side without a mask, or leaves one with a mask out.

    None where it does not tell: no known form, no side of a body, or sides that are unknown.
    """
    read = parsed(text)
    if read is None or read.number is None or not read.sides or not radiological:
        return None
    return read.sides != sides_of(masks)
