"""Read the answers that the wordings make: a wording must say what it was given, and nothing else can have said it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from cxr.radvlm.instructions.wordings import SLOT, load_wordings
from cxr.vlm.conventions import Convention, InputSize
from cxr.vlm.reading import read_boxes

_BOX = r"\[[^\[\]]+\]"
_BOXES = rf"{_BOX}(?:(?:, | and ){_BOX})*"
_ITEM = rf"[^;\[\]]+ {_BOXES}"
_SLOT_PATTERNS = {
    "boxes": _BOXES, "items": rf"{_ITEM}(?:; {_ITEM})*", "number": r"\d+", "answer": r"[^\[\]]*", "report": r".+",
}  # fmt: skip
"""{slot: what may stand in it}; anything without brackets in the others."""
_WORDS = r"[^\[\]]+?"
_ORDER = ("none", "some", "answers")
"""Kinds as they are tried: the words of a list may be those of "none"."""


@dataclass(frozen=True)
class ParsedAnswer:
    """What an answer says. kind: of its wording; slots: {slot: its text}; names: findings or regions, as they are said;
    boxes: {name: fractions}, the name "" where the answer does not repeat it.
    """

    kind: str
    slots: Mapping[str, str]
    names: tuple[str, ...] = ()
    boxes: Mapping[str, list] = field(default_factory=dict)


@cache
def _answer_patterns(task: str) -> list[tuple[str, re.Pattern]]:
    patterns = []
    for kind in sorted(load_wordings()[task].answers, key=_ORDER.index):
        for text in load_wordings()[task].answers[kind].values():
            parts = SLOT.split(text)
            pattern_text = "".join(
                f"(?P<{part}>{_SLOT_PATTERNS.get(part, _WORDS)})" if at % 2 else re.escape(part)
                for at, part in enumerate(parts)
            )
            patterns.append((kind, re.compile(pattern_text, re.IGNORECASE | re.DOTALL)))
    return patterns


def read_back(task: str, answer: str, convention: Convention, image_size: InputSize) -> ParsedAnswer | None:
    """Return what a worded answer says, its boxes written in the convention; None for one that no wording makes."""
    for kind, pattern in _answer_patterns(task):
        if match := pattern.fullmatch(answer):
            slots = match.groupdict()
            names, boxes = _parse_names_and_boxes(slots, convention, image_size)
            return ParsedAnswer(kind, slots, names, boxes)
    return None


def _parse_names_and_boxes(
    slots: Mapping[str, str], convention: Convention, image_size: InputSize
) -> tuple[tuple[str, ...], dict[str, list]]:
    def boxes(text: str) -> list:
        return read_boxes(text, convention, image_size).boxes.tolist()

    if "items" in slots:
        items = [item.partition(" [") for item in slots["items"].split("; ")]
        return tuple(name for name, _, _ in items), {name: boxes(f"[{boxes_text}") for name, _, boxes_text in items}
    target_name = slots.get("region") or slots.get("finding") or ""
    if "findings" in slots:
        return tuple(re.split(", | and ", slots["findings"])), {}
    return ((target_name,) if target_name else ()), ({target_name: boxes(slots["boxes"])} if "boxes" in slots else {})
