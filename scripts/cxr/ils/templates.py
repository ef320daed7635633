"""Write the instructions and answers of Table 2, and parse them.

There are three types of instruction: *basic* names a lesion and a location, *global* names a lesion, *lesion inference*
asks for the type of an opacity at a location. Every answer starts with ``[SEG]``, even if there is nothing to segment.
The parser is stricter than the authors' released evaluation: a text that no template produces is an error.
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
    """The meaning of an instruction: its type, the lesion type it names, valid locations (none for a global)."""

    type: str
    word: str
    location: tuple[str, ...]


@dataclass(frozen=True)
class Meaning(Instruction):
    """The meaning of an instruction and its answer; the location of a positive cardiomegaly is ``("heart",)``."""

    present: bool
    lesion: str | None = None  # The lesion type inferred, in a positive answer to a lesion inference
    certainty: str | None = None  # definitive or tentative, in a positive answer to a lesion inference


def join_locations(locations: Sequence[str]) -> str:
    """Join locations in the order of Table 9. Raises ValueError for none or unknown."""
    names = in_table_order(locations)
    if not names:
        raise ValueError("an instruction that names a place needs at least one location")
    return join_names(names)


def join_names(names: Sequence[str]) -> str:
    """Join names: "a", "a and b", "a, b, and c"."""
    if len(names) <= 2:
        return " and ".join(names)
    return f"{', '.join(names[:-1])}, and {names[-1]}"


def split_locations(text: str) -> tuple[str, ...]:
    """Undo :func:`join_locations`. Raises ValueError for an invalid location or another format."""
    names = tuple(name for name in re.split(r", and |, | and ", text) if name)
    if any(name not in VALID_LOCATIONS for name in names) or join_locations(names) != text:
        raise ValueError(f"not a list of valid locations: {text!r}")
    return names


def write_instruction(kind: str, word: str, location: Sequence[str] = ()) -> str:
    """Return the instruction of Table 2. A global one ignores ``location``."""
    if kind == GLOBAL:
        return f"Segment the {word}."
    if kind == BASIC:
        return f"Segment the {word} in the {join_locations(location)}."
    if kind == INFERENCE:
        return f"Segment the {OPACITY} in the {join_locations(location)} and predict its type."
    raise ValueError(f"type must be one of {', '.join(TYPES)}, not {kind!r}")


def write_positive_answer(kind: str, target: str, location: Sequence[str], certainty: str | None = None) -> str:
    """Return the answer if the lesion is present: for cardiomegaly ``[SEG]`` alone, as in the release."""
    if kind == INFERENCE:
        return f"{SEG} It {CERTAINTY_PHRASES[certainty]} {target}."
    if kind == BASIC or target == CARDIOMEGALY:
        return SEG
    return f"{SEG} It is located in the {join_locations(location)}."


def write_negative_answer(kind: str, word: str, location: Sequence[str] = ()) -> str:
    """Return the answer if the lesion is absent."""
    if kind == GLOBAL:
        return f"{SEG} There is no {word}."
    return f"{SEG} There is no {OPACITY if kind == INFERENCE else word} in the {join_locations(location)}."


def detect_type(text: str) -> str:
    """Return the type of an instruction by its phrases, as in the authors' released evaluation."""
    if "predict its type" in text:
        return INFERENCE
    return BASIC if "in the" in text else GLOBAL


def parse_instruction(question: str) -> Instruction:
    """Parse an instruction. Raises ValueError unless it is of Table 2."""
    kind = detect_type(question)
    match = _INSTRUCTIONS[kind].fullmatch(question)
    if match is None or (kind != GLOBAL and match["word"] == CARDIOMEGALY):
        raise ValueError(f"not an instruction of Table 2: {question!r}")
    return Instruction(kind, match["word"], () if kind == GLOBAL else split_locations(match["place"]))


def parse_pair(question: str, answer: str) -> Meaning:
    """Parse an instruction and its answer. Raises ValueError unless both are of Table 2 and agree."""
    parsed_instruction = parse_instruction(question)
    kind, word, location = parsed_instruction.type, parsed_instruction.word, parsed_instruction.location
    if absent := _ABSENT.fullmatch(answer):
        denied = split_locations(absent["place"]) if absent["place"] else ()
        if (absent["word"], denied) != (word, location):
            raise ValueError(f"the answer denies something other than the question: {question!r} {answer!r}")
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
    raise ValueError(f"not an answer of Table 2 to this instruction: {question!r} {answer!r}")
