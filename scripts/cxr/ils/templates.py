"""Write the instructions and answers of the paper's Table 2, and parse them.

There are three types of instruction. *Basic* names a lesion type and locations, *global* only a lesion type, and
*lesion inference* asks for the type of an opacity at locations. Every answer starts with ``[SEG]``, even if there is
nothing to segment. The parser raises an error for any other text, unlike the authors' released evaluation.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cxr.base.vocabulary import HEART, LESIONS, VALID_LOCATIONS, in_table_order

BASIC, GLOBAL, INFERENCE = "basic", "global", "lesion_inference"
TYPES = (BASIC, GLOBAL, INFERENCE)
SEG = "[SEG]"
OPACITY, CARDIOMEGALY = "opacity", "cardiomegaly"
CERTAINTY_PHRASES = {"definitive": "is highly suggestive of", "tentative": "possibly reflects"}

_PLACE = r"(?P<place>[a-z ,]+?)"
_WORD = rf"(?P<word>{'|'.join(LESIONS)})"
_LESION = rf"(?P<lesion>{'|'.join(LESIONS)})"
_INSTRUCTIONS = {
    INFERENCE: re.compile(rf"Segment the (?P<word>{OPACITY}) in the {_PLACE} and predict its type\."),
    BASIC: re.compile(rf"Segment the {_WORD} in the {_PLACE}\."),
    GLOBAL: re.compile(rf"Segment the {_WORD}\."),
}
_LOCATED = re.compile(rf"\[SEG\] It is located in the {_PLACE}\.")
_ABSENT = re.compile(rf"\[SEG\] There is no {_WORD}(?: in the {_PLACE})?\.")
_SUGGESTED = {
    certainty: re.compile(rf"\[SEG\] It {phrase} {_LESION}\.") for certainty, phrase in CERTAINTY_PHRASES.items()
}


@dataclass(frozen=True)
class Instruction:
    """The meaning of an instruction."""

    type: str  # basic, global or lesion_inference
    word: str  # The lesion type that the text names
    location: tuple[str, ...]  # Valid locations (Table 9); empty for a global instruction


@dataclass(frozen=True)
class Meaning(Instruction):
    """The meaning of an instruction and its answer. If they affirm cardiomegaly, the location is ``("heart",)``."""

    present: bool  # Whether the answer affirms the lesion
    lesion: str | None = None  # The lesion type inferred, in a positive answer to a lesion inference
    certainty: str | None = None  # definitive or tentative, in a positive answer to a lesion inference


def join_locations(locations: Sequence[str]) -> str:
    """Return locations as an English list in the order of Table 9. Raises ValueError for an empty or invalid list."""
    names = in_table_order(locations)
    if not names:
        raise ValueError("a basic or lesion-inference instruction needs a location, but none is given: add one")
    return join_names(names)


def join_names(names: Sequence[str]) -> str:
    """Return names as a list in English: "a", "a and b" or "a, b, and c"."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def split_locations(text: str) -> tuple[str, ...]:
    """Return the locations in a text that :func:`join_locations` wrote. Raises ValueError for any other text."""
    names = tuple(name for name in re.split(r", and |, | and ", text) if name)
    if any(name not in VALID_LOCATIONS for name in names) or join_locations(names) != text:
        raise ValueError(f"{text!r} is not an English list of valid locations (Table 9), in the table's order")
    return names


def write_instruction(kind: str, word: str, location: Sequence[str] = ()) -> str:
    """Return the text of an instruction of type ``kind`` about the lesion type ``word``.

    ``location``: valid locations, ignored for a global instruction. Raises ValueError for an unknown ``kind``.
    """
    if kind == GLOBAL:
        return f"Segment the {word}."
    if kind == BASIC:
        return f"Segment the {word} in the {join_locations(location)}."
    if kind == INFERENCE:
        return f"Segment the {OPACITY} in the {join_locations(location)} and predict its type."
    raise ValueError(f"type must be one of {', '.join(TYPES)}, not {kind!r}")


def write_positive_answer(kind: str, target: str, location: Sequence[str], certainty: str | None = None) -> str:
    """Return the answer that affirms the lesion type ``target``.

    Only a lesion inference states the ``certainty``. For cardiomegaly the answer is ``[SEG]``, as in the release.
    """
    if kind == INFERENCE:
        return f"{SEG} It {CERTAINTY_PHRASES[certainty]} {target}."
    if kind == BASIC or target == CARDIOMEGALY:
        return SEG
    return f"{SEG} It is located in the {join_locations(location)}."


def write_negative_answer(kind: str, word: str, location: Sequence[str] = ()) -> str:
    """Return the answer that denies the lesion type ``word``, for the arguments of :func:`write_instruction`."""
    if kind == GLOBAL:
        return f"{SEG} There is no {word}."
    return f"{SEG} There is no {OPACITY if kind == INFERENCE else word} in the {join_locations(location)}."


def detect_type(text: str) -> str:
    """Return the type of an instruction, recognised by fixed phrases as in the authors' released evaluation."""
    if "predict its type" in text:
        return INFERENCE
    return BASIC if "in the" in text else GLOBAL


def parse_instruction(question: str) -> Instruction:
    """Return the meaning of an instruction. Raises ValueError if no template of Table 2 produces the text."""
    kind = detect_type(question)
    match = _INSTRUCTIONS[kind].fullmatch(question)
    if match is None or (kind != GLOBAL and match["word"] == CARDIOMEGALY):
        raise ValueError(f"no instruction template of the paper's Table 2 produces {question!r}")
    return Instruction(kind, match["word"], () if kind == GLOBAL else split_locations(match["place"]))


def parse_pair(question: str, answer: str) -> Meaning:
    """Return the meaning of an instruction and its answer. Raises ValueError if Table 2 does not allow the pair."""
    parsed_instruction = parse_instruction(question)
    kind, word, location = parsed_instruction.type, parsed_instruction.word, parsed_instruction.location
    if absent := _ABSENT.fullmatch(answer):
        denied = split_locations(absent["place"]) if absent["place"] else ()
        if (absent["word"], denied) != (word, location):
            raise ValueError(f"the answer {answer!r} denies another lesion or location than {question!r} asks for")
        return Meaning(kind, word, location, present=False)
    if kind == INFERENCE:
        for certainty, pattern in _SUGGESTED.items():
            if match := pattern.fullmatch(answer):
                return Meaning(kind, word, location, True, match["lesion"], certainty)
    elif answer == SEG and kind == BASIC:
        return Meaning(kind, word, location, present=True)
    elif answer == SEG and word == CARDIOMEGALY:
        return Meaning(kind, word, (HEART,), present=True)
    elif kind == GLOBAL and word != CARDIOMEGALY and (match := _LOCATED.fullmatch(answer)):
        return Meaning(kind, word, split_locations(match["place"]), present=True)
    raise ValueError(f"the paper's Table 2 does not allow the answer {answer!r} to the instruction {question!r}")
