"""Boxes of conversations as text: slots are written for the check, and what was checked becomes slots."""

import re
from collections.abc import Sequence

from cxr.instructions.record import Box
from cxr.radvlm.boxes import DECIMALS, rounded
from cxr.radvlm.conversations.facts import Phrase
from cxr.radvlm.conversations.record import Conversation
from cxr.radvlm.samples import slot

_NUMBER = r"-?\d+(?:\.\d+)?"
_ONE = r"\[\s*" + r"\s*,\s*".join([f"({_NUMBER})"] * 4) + r"\s*\]"
_BOX = re.compile(_ONE)
_RUN = re.compile(rf"{_ONE}(?:(?:,| and|, and) {_ONE})*".replace(f"({_NUMBER})", _NUMBER))
_SLOT = re.compile(r"<box:([^<>]+)>")


def text_of(boxes: Sequence[Box]) -> str:
    """Return boxes as a text: "[0.10, 0.20, 0.30, 0.40] and [...]"."""
    *first, last = (f"[{', '.join(f'{value:.{DECIMALS}f}' for value in box)}]" for box in boxes)
    return f"{', '.join(first)} and {last}" if first else last


def messages_of(conversation: Conversation) -> list[dict[str, str]]:
    """Return the messages of a conversation, its boxes written."""
    return [
        {"role": role, "text": _SLOT.sub(lambda hit: text_of(conversation.boxes[hit[1]]), text)}
        for turn in conversation.turns
        for role, text in (("user", turn.question), ("assistant", turn.answer))
    ]


def with_slots(texts: Sequence[str], phrases: Sequence[Phrase]) -> tuple[list[str], dict[str, tuple[Box, ...]]]:
    """Return texts whose written boxes are slots, and {name: boxes}.

    A run of boxes ("[…] and […]") is one slot. The boxes of phrases keep their decimals; a box that is none of theirs
    stays as it was written.
    """
    exact = {written_box(box): box for phrase in phrases for box in phrase.boxes}
    names: dict[tuple[Box, ...], str] = {}

    def slotted(hit: re.Match) -> str:
        written_boxes = [tuple(map(float, corners)) for corners in _BOX.findall(hit.group())]
        if not all(box in exact for box in written_boxes):
            return hit.group()
        boxes = tuple(exact[box] for box in written_boxes)
        return slot(names.setdefault(boxes, f"box {len(names) + 1}"))

    slotted_texts = [_RUN.sub(slotted, text) for text in texts]
    return slotted_texts, {name: boxes for boxes, name in names.items()}


def written_box(box: Box) -> tuple[float, ...]:
    """Return a box as it is written: in two decimals."""
    return tuple(map(rounded, box))
