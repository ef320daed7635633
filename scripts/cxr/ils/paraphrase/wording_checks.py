"""Check that wordings keep the meaning of their instruction, with ``resources/paraphrase/vocabulary.yaml``.

The parser finds the names of the lesion type and of the locations in a text. It rejects a text that it does not
understand, because a wording with a different meaning would teach a model a wrong mask.
"""

import re
from collections.abc import Sequence
from functools import cache
from types import SimpleNamespace

from cxr.base.lesions import LESION_TYPES
from cxr.base.resources import load_resource
from cxr.base.vocabulary import SIDES, in_table_order
from cxr.ils.paraphrase.engine import Task
from cxr.ils.templates import BASIC, CARDIOMEGALY, GLOBAL, INFERENCE, OPACITY, Instruction

RESOURCE_FILES = ("paraphrase/vocabulary.yaml",)
BOTH = "both"


class UnusableWording(ValueError):
    """Raised for an unusable wording. The message does not quote the wording, so it may be logged."""


@cache
def _patterns() -> SimpleNamespace:
    """Return the vocabulary file: the dicts ``lesions`` and ``places``, {term: meaning}, and regular expressions."""
    vocabulary = load_resource(RESOURCE_FILES[0])
    lesions = {term: lesion.name for lesion in LESION_TYPES for term in lesion.synonyms}
    places = {
        term.format(side=side): tuple(f"{lung_side} {level}" for lung_side in (SIDES if side == BOTH else (side,)))
        for level, terms in vocabulary["places"].items()
        for term in terms
        for side in (*SIDES, BOTH)
    }
    # "both" takes no article, and its parts take a plural: "the bases of both lungs"
    of_both = [(term, locations) for term, locations in places.items() if f" of the {BOTH}" in term]
    places |= {
        term.replace(f"{end} of the {BOTH}", f"{plural} of {BOTH}"): locations
        for term, locations in of_both
        for end, plural in (("", ""), ("", "s"))
    }
    return SimpleNamespace(
        lesions=lesions,
        places=places,
        lesion=_any_of(lesions),
        place=_any_of(places),
        asks=re.compile(rf"\b(?:{'|'.join(vocabulary['asks'])})"),
        types=re.compile(rf"\b(?:{'|'.join(vocabulary['types'])})\b"),
        left_over=re.compile(rf"\b(?:{'|'.join(vocabulary['left_over'])})\b"),
        strange=re.compile(rf"[^{vocabulary['letters']}]"),
        longest=vocabulary["longest"],
    )


def _any_of(terms: dict) -> re.Pattern:
    return re.compile(rf"\b({'|'.join(sorted(map(re.escape, terms), key=len, reverse=True))})s?\b")


def list_lesion_names(lesion: str) -> list[str]:
    """Return all terms for a lesion type, such as "cardiac enlargement" for cardiomegaly."""
    return [name for name, meaning in _patterns().lesions.items() if meaning == lesion]


def list_place_names(location: str) -> list[str]:
    """Return all terms for a valid location, such as "bottom of the right lung" for the right lung base."""
    side, _, level = location.partition(" ")
    return [term.format(side=side) for term in load_resource(RESOURCE_FILES[0])["places"][level]]


def parse_wording(text: str) -> Instruction:
    """Return the meaning of a wording. Raises :class:`UnusableWording`, with the reason, if it has no clear meaning."""
    words = _patterns()
    if len(text) > words.longest:
        raise UnusableWording("is longer than any instruction")
    if words.strange.search(text):
        raise UnusableWording("contains a character that is not allowed")
    remaining_text = " ".join(text.lower().split())
    lesions = {words.lesions[term] for term in words.lesion.findall(remaining_text)}
    if len(lesions) != 1:
        raise UnusableWording("names more than one lesion type" if lesions else "names no lesion type")
    (lesion,) = lesions
    remaining_text = words.lesion.sub(" ~ ", remaining_text)
    locations = [location for term in words.place.findall(remaining_text) for location in words.places[term]]
    remaining_text = words.place.sub(" ~ ", remaining_text)
    if words.left_over.search(remaining_text):
        raise UnusableWording("contains a word that changes the meaning")
    if not words.asks.search(remaining_text):
        raise UnusableWording("asks for no mask")
    asks_for_type = words.types.search(remaining_text) is not None
    if locations and lesion == CARDIOMEGALY:
        raise UnusableWording("names a location of cardiomegaly")
    if asks_for_type and not (locations and lesion == OPACITY):
        raise UnusableWording("asks for a type, but not of an opacity with a location")
    instruction_type = INFERENCE if asks_for_type else BASIC if locations else GLOBAL
    return Instruction(instruction_type, lesion, tuple(in_table_order(set(locations))))


def find_meaning_problem(text: str, meant: Instruction) -> str | None:
    """Return the reason why a wording does not have the meaning ``meant``; None if it has this meaning."""
    try:
        parsed_wording = parse_wording(text)
    except UnusableWording as reason:
        return str(reason)
    if parsed_wording.word != meant.word:
        return "names another lesion type"
    if parsed_wording.type != meant.type:
        return "is another type of instruction"
    return "names other locations" if parsed_wording.location != meant.location else None


def find_problem(wordings: Sequence[str], task: Task) -> str | None:
    """Return number and fault of the first wording that repeats another or changes the meaning; None if none does."""
    plain_texts = {_normalise(text) for text in (task.text, *task.existing_wordings)}
    for number, text in enumerate(wordings, 1):
        if _normalise(text) in plain_texts:
            return f"wording {number}: comes twice"
        plain_texts.add(_normalise(text))
        if problem := find_meaning_problem(text, task.meaning):
            return f"wording {number}: {problem}"
    return None


def _normalise(text: str) -> str:
    return " ".join("".join(letter if letter.isalnum() else " " for letter in text.lower()).split())
