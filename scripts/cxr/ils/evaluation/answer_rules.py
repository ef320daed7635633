"""Judge answers by strict rules, and by the looser rules of an earlier version of the authors' evaluation.

* ``strict``: the answer equals the expected answer of Table 2, ``[SEG]`` included.
* ``strict_lesion``: as strict, but "is highly suggestive of" and "possibly reflects" are equivalent.
* ``authors``: phrases state the same target, location and presence. In a positive lesion inference only the name of
  the lesion must be equal. Any answer to a positive basic instruction is right unless it denies the lesion.
* ``authors_certainty``: as authors, and the certainty of a lesion inference must be equal too.
* ``authors_side``: as authors, but a global answer that names one lung is right if the reference names that side.
"""

import re
from dataclasses import dataclass

from cxr.ils.templates import BASIC, GLOBAL, INFERENCE

RULES = ("strict", "strict_lesion", "authors", "authors_certainty", "authors_side")
SHOWN_RULES = ("strict", "authors")  # rules whose accuracy is listed with the masks' scores
NOT_EXTRACTED = "not extracted"

_CERTAINTY = re.compile(r"is highly suggestive of|possibly reflects")
_INFERRED = re.compile(r"(?:highly suggestive of|possibly reflects|is no)\s+(.+?)[.\n]*$")
_PRESENCE = (("highly suggestive of", "definite"), ("possibly reflects", "tentative"), ("is no", "no"))
_ABSENT_HERE = re.compile(r"there is no\s+(.+?)\s+in the\s+(.+?)[.\n]*$")
_LOCATED = re.compile(r"it is located in the\s+(.+?)[.\n]*$")
_ABSENT = re.compile(r"there is no\s+(.+?)[.\n]*$")


@dataclass(frozen=True)
class ParsedAnswer:
    """The fields that the authors' rules recognise in an answer. A missing field is ``not extracted``."""

    type: str
    target: str = NOT_EXTRACTED
    location: str = NOT_EXTRACTED
    presence: str = NOT_EXTRACTED


def parse_answer(kind: str, answer: str) -> ParsedAnswer:
    """Return the fields of an answer to an instruction of type ``kind``, recognised by the authors' phrases."""
    answer = answer.strip().lower()
    if kind == INFERENCE:
        match = _INFERRED.search(answer)
        presence = next((name for phrase, name in _PRESENCE if phrase in answer), NOT_EXTRACTED)
        return ParsedAnswer(kind, match[1] if match else NOT_EXTRACTED, NOT_EXTRACTED, presence)
    if kind == BASIC:
        match = _ABSENT_HERE.search(answer)
        return ParsedAnswer(kind, match[1], match[2], "no") if match else ParsedAnswer(kind, presence="yes")
    if kind == GLOBAL:
        if re.search(r"it is located in the .+", answer):
            match = _LOCATED.search(answer)
            return ParsedAnswer(kind, NOT_EXTRACTED, match[1] if match else NOT_EXTRACTED, "yes")
        if re.search(r"there is no .+", answer):
            match = _ABSENT.search(answer)
            return ParsedAnswer(kind, match[1] if match else NOT_EXTRACTED, "none", "no")
    return ParsedAnswer(kind)


def judge_by_authors(kind: str, reference: str, answer: str) -> dict[str, bool]:
    """Return {rule: whether the answer is right} for each of the authors' rules; ``reference``: expected answer."""
    parsed_reference, parsed_answer = parse_answer(kind, reference), parse_answer(kind, answer)
    equal = parsed_reference == parsed_answer
    inferred = kind == INFERENCE and parsed_reference.presence != "no"
    headline = parsed_reference.target == parsed_answer.target if inferred else equal
    one_lung = kind == GLOBAL and parsed_answer.location in ("right lung", "left lung")
    side = parsed_answer.location.removesuffix(" lung") in parsed_reference.location if one_lung else headline
    return {"authors": headline, "authors_certainty": equal, "authors_side": side}


def judge_strictly(reference: str, answer: str) -> dict[str, bool]:
    """Return {rule: whether the answer is right} for each of the strict rules; ``reference``: expected answer."""
    reference, answer = (" ".join(text.split()) for text in (reference, answer))
    alike = _CERTAINTY.sub("~", reference) == _CERTAINTY.sub("~", answer)
    return {"strict": reference == answer, "strict_lesion": alike}


def judge_answer(kind: str, reference: str, answer: str) -> dict[str, bool]:
    """Return {rule: whether the answer is right} for every rule of ``RULES``."""
    return judge_strictly(reference, answer) | judge_by_authors(kind, reference, answer)
