"""Texts about images: the descriptions that come with images, and the form that every query must have.

Two forms of descriptions are understood. LViT's datasets have "(bilateral|unilateral) pulmonary infection, NUMBER
infected area(s), PLACE[, PLACE]* [and PLACE].", where PLACE is "all", or one or more of "upper", "middle" and "lower",
followed by "left lung" or "right lung". LViT's copy of MoNuSeg has sentences such as "The nuclei density in the upper
right is high"."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import cv2
import numpy as np

from cxr.base.vocabulary import SIDES
from cxr.llm.guards import addresses_the_model, neutralize

Entry = TypeVar("Entry")
WORD_LIMITS = (4, 60)
FIELDS = ("queries", "text", "targets", "bbox_2d", "observed", "grounded", "unambiguous")
"""Field names of models' answers. A text with one of them in quotes and a colon counts as an instruction to a model."""
COORDINATES = re.compile(r"\d|\bbox(?:es)? (?:number|no\.?|[a-z] )|\bbbox|\bcoordinates?\b|\bpixels?\b", re.IGNORECASE)
MARKS = re.compile(r"[<>{}\[\]\\`*#|_~]|[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]")
SENTENCE = re.compile(r"[.!?](?=\s+\S)")
NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LEVELS = {"upper": "upper", "middle": "mid", "lower": "lower"}  # {level in a description: its word in a zone's name}
_INFECTION = re.compile(r"(?:bilateral|unilateral) pulmonary infection, (\w+) infected areas?, (.+?)\.?$")
_PLACE = re.compile(r"((?:all|upper|middle|lower)(?: (?:upper|middle|lower))*) (left|right) lung")
_DENSITY = re.compile(r"the nuclei density in the (upper|lower)?\s?(left|right)? is high\.?$")


class Description(NamedTuple):
    """Content of an image's description. ``number``: number of infected areas, or None. ``places``: (levels, side) of
    each place, such as (("upper", "middle"), "left"). In LViT's form, sides are the patient's."""

    number: int | None
    places: tuple[tuple[tuple[str, ...], str], ...]

    @property
    def sides(self) -> set[str]:
        """The sides that the description names."""
        return {side for _, side in self.places if side}


def parse_description(text: str) -> Description | None:
    """Return the content of a description, or None if it has neither of the two forms that this module describes."""
    text = text.strip().lower()
    if match := _DENSITY.fullmatch(text):
        level, side = (part or "" for part in match.groups())
        return Description(None, (((level,) if level else (), side),)) if level or side else None
    match = _INFECTION.fullmatch(text)
    if not match:
        return None
    word, listed_places = match.groups()
    number = NUMBERS.index(word) + 1 if word in NUMBERS else int(word) if word.isdigit() else None
    parts = [part for part in re.split(r",\s*(?:and\s+)?|\s+and\s+", listed_places) if part]
    places = [_PLACE.fullmatch(part.strip()) for part in parts]
    if number is None or not places or not all(places):
        return None
    levels = (tuple(LEVELS) if place[1] == "all" else tuple(place[1].split()) for place in places)
    return Description(number, tuple(zip(levels, (place[2] for place in places), strict=True)))


def parse_statement(text: str, radiological: bool | None) -> Description | None:
    """Return the content of a description that states a number of areas and sides of the patient. Return None for any
    other description, or if ``radiological`` is not true, because the patient's sides on the image are then unknown."""
    description = parse_description(text) if radiological else None
    return description if description is not None and description.number is not None and description.sides else None


def patient_side(x: float, middle: float) -> str:
    """Return the patient's side at the column ``x``, if the patient's right is left of the midline ``middle``."""
    return "right" if x < middle else "left"


def description_faults(read: Description, sides: Sequence[str]) -> list[str]:
    """Return the errors of a description ``read``: "side" if it names other sides than the regions have, and "number"
    if it states another number of regions. ``sides``: the patient's side of each region."""
    return ["side"] * (read.sides != set(sides)) + ["number"] * (read.number != len(sides))


def described_zones(read: Description, sides: Sequence[str]) -> Mapping[str, np.ndarray]:
    """Return {lung zone: fraction of each region in the zone, float (N,)} from a description, NaN where it is unknown.
    The result is empty if the description contradicts the regions, or if no region is alone on its side.

    A region alone on its side lies in the level that the description names there. If it names several levels, the
    fractions in them are NaN. Regions that share a side only have the fraction 0 in zones of the other side."""
    alone = [side for side in SIDES if list(sides).count(side) == 1]
    if description_faults(read, sides) or not alone:
        return {}
    shares_by_zone = {}
    for side in SIDES:
        side_levels = {level for names, place_side in read.places if place_side == side for level in names}
        for level, word in LEVELS.items():
            is_unknown = side not in alone or (level in side_levels and len(side_levels) > 1)
            share = np.nan if is_unknown else float(level in side_levels)
            shares = [share if region_side == side else 0.0 for region_side in sides]
            shares_by_zone[f"{side} {word} zone lung"] = np.array(shares)
    return shares_by_zone


LONGEST = 600  # longest description, in characters; the rest is cut off
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]")


def clean_description(text: str) -> tuple[str, str]:
    """Return (text that is safe in a prompt, state) of a description. The state is "none" (empty), "refused" (it gives
    instructions to a model), "read" (:func:`parse_description` understands it) or "unread"."""
    plain = " ".join(neutralize(_INVISIBLE.sub("", text)).split())
    if not plain:
        return "", "none"
    if addresses_the_model(text, FIELDS) or addresses_the_model(plain, FIELDS):
        return "", "refused"
    plain = plain[:LONGEST].rstrip()
    return plain, "unread" if parse_description(plain) is None else "read"


def sides_disagree(text: str, masks: Mapping[str, np.ndarray], radiological: bool) -> bool | None:
    """Return whether a description names other sides of the patient than ``masks``, {class: mask}, have. Return None
    unless :func:`parse_statement` understands it. ``radiological``: whether the image's left is the patient's right."""
    statement, sides = parse_statement(text, radiological), set()
    if statement is None:
        return None
    for mask in masks.values():
        *_, centroids = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
        sides |= {patient_side(x + 0.5, mask.shape[1] / 2) for x, _ in centroids[1:].tolist()}
    return statement.sides != sides


def split_phrases(parts: list[str], entries: Mapping[str, Entry], longest: int) -> Iterator[tuple[str, Entry | None]]:
    """Split a text, given as its words ``parts``, into the longest phrases that ``entries`` has, and yield (phrase, its
    entry). An unknown word gives (word, None). ``longest``: number of words of the longest phrase in ``entries``."""
    at = 0
    while at < len(parts):
        counts = range(min(longest, len(parts) - at), 0, -1)
        known_count = next((count for count in counts if " ".join(parts[at : at + count]) in entries), 1)
        phrase = " ".join(parts[at : at + known_count])
        yield phrase, entries.get(phrase)
        at += known_count


def find_text_fault(text: str) -> tuple[str, str] | None:
    """Return (reason, detail), such as ("length", "3 words"), if a text cannot be a query, and None if it can."""
    count = len(text.split())
    if MARKS.search(text):
        return "markup", ""
    if addresses_the_model(text):
        return "speaks_to_model", ""
    if match := COORDINATES.search(text):
        return "coordinates", match[0].strip()
    if not WORD_LIMITS[0] <= count <= WORD_LIMITS[1]:
        return "length", f"{count} words"
    return ("sentences", "") if SENTENCE.search(text.rstrip()) else None
