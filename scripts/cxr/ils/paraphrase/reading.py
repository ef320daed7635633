"""What an instruction in anyone's wording asks for, read by the words of ``resources/paraphrase/vocabulary.yaml``.

The reader knows no wording of its own: it takes the lesion type and the places out of a text by their names, and
refuses whatever it does not understand, for a wording that means something else would teach a model a wrong mask.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import SIDES, in_table_order
from cxr.ils.templates import BASIC, CARDIOMEGALY, GLOBAL, INFERENCE, OPACITY, Instruction

RESOURCE_FILES = ("paraphrase/vocabulary.yaml",)
BOTH = "both"


class Unread(ValueError):
    """A wording that cannot be used; the message says why, without a word of the wording: it may go to a log."""


@dataclass(frozen=True)
class _Words:
    """The vocabulary as patterns; a term of a lesion or place stands for what it means."""

    lesions: dict[str, str]
    places: dict[str, tuple[str, ...]]
    lesion: re.Pattern
    place: re.Pattern
    asks: re.Pattern
    types: re.Pattern
    left_over: re.Pattern
    strange: re.Pattern
    longest: int


@cache
def _told() -> dict:
    return yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))


@cache
def _words() -> _Words:
    told = _told()
    lesions = {term: lesion for lesion, terms in told["lesions"].items() for term in terms}
    places = {
        term.format(side=side): tuple(f"{one} {level}" for one in (SIDES if side == BOTH else (side,)))
        for level, terms in told["places"].items()
        for term in terms
        for side in (*SIDES, BOTH)
    }
    # both sides have no article, and their parts a plural: "the bases of both lungs"
    of_both = [(term, found) for term, found in places.items() if f" of the {BOTH}" in term]
    places |= {
        term.replace(f"{end} of the {BOTH}", f"{plural} of {BOTH}"): found
        for term, found in of_both
        for end, plural in (("", ""), ("", "s"))
    }
    return _Words(
        lesions=lesions,
        places=places,
        lesion=_any_of(lesions),
        place=_any_of(places),
        asks=re.compile(rf"\b(?:{'|'.join(told['asks'])})"),
        types=re.compile(rf"\b(?:{'|'.join(told['types'])})\b"),
        left_over=re.compile(rf"\b(?:{'|'.join(told['left_over'])})\b"),
        strange=re.compile(rf"[^{told['letters']}]"),
        longest=told["longest"],
    )


def _any_of(terms: dict) -> re.Pattern:
    """Return the pattern of any of the terms, the longest first, in the plural too."""
    return re.compile(rf"\b({'|'.join(sorted(map(re.escape, terms), key=len, reverse=True))})s?\b")


def names_of_lesion(lesion: str) -> list[str]:
    """Return the names by which a lesion type is known."""
    return list(_told()["lesions"][lesion])


def names_of_place(location: str) -> list[str]:
    """Return the names by which a valid location is known."""
    side, _, level = location.partition(" ")
    return [term.format(side=side) for term in _told()["places"][level]]


def read(text: str) -> Instruction:
    """Return what a wording asks for. Raises :class:`Unread`."""
    words = _words()
    if len(text) > words.longest:
        raise Unread("longer than any instruction")
    if words.strange.search(text):
        raise Unread("a character that no instruction holds")
    rest = " ".join(text.lower().split())
    lesion = _one({words.lesions[term] for term in words.lesion.findall(rest)})
    rest = words.lesion.sub(" ~ ", rest)
    found = [location for term in words.place.findall(rest) for location in words.places[term]]
    rest = words.place.sub(" ~ ", rest)
    if words.left_over.search(rest):
        raise Unread("a word that changes the meaning")
    if not words.asks.search(rest):
        raise Unread("asks for no mask")
    typed = words.types.search(rest) is not None
    return Instruction(_type(lesion, bool(found), typed), lesion, tuple(in_table_order(set(found))))


def _one(lesions: set[str]) -> str:
    if len(lesions) != 1:
        raise Unread("names more than one lesion type" if lesions else "names no lesion type")
    return lesions.pop()


def _type(lesion: str, placed: bool, typed: bool) -> str:
    if placed and lesion == CARDIOMEGALY:
        raise Unread("names a place of the heart")
    if typed and not (placed and lesion == OPACITY):
        raise Unread("asks for the type of what has none")
    return INFERENCE if typed else BASIC if placed else GLOBAL


def meaning_problem(text: str, meant: Instruction) -> str | None:
    """Return why a wording cannot stand for an instruction, None if it can."""
    try:
        said = read(text)
    except Unread as reason:
        return str(reason)
    for name, told in (
        ("another lesion type", "word"),
        ("another type of instruction", "type"),
        ("other places", "location"),
    ):
        if getattr(said, told) != getattr(meant, told):
            return name
    return None
