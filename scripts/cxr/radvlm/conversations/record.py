"""A conversation about one image, and its line in ``results/radvlm/conversations/{source}/conversations.jsonl``.

A line has conversation_id, source, image_id, study_id, subject_id, split, grounded, number (from 0, where an image has
several of a kind), engine, turns (question, answer, act, wording), boxes, mask_ids, facts, digests. An answer marks
boxes by a slot ``<box:name>``; ``boxes`` gives the boxes of each name as fractions of the original image's width and
height. Each ``[SEG]`` of the answers is one of ``mask_ids``, in order. ``facts``: ids of the supporting facts; for a
sentence of the report its study and number (``s1#2``).
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cxr.instructions.record import Box
from cxr.radvlm.boxes import DECIMALS, round_coordinate
from cxr.radvlm.conversations.facts import Phrase
from cxr.radvlm.samples import box_slot

STANDARD, GROUNDED = "standard", "grounded"


@dataclass(frozen=True)
class Turn:
    """A round. act: what the question asks for; wording: id of its template; both empty for a language model."""

    question: str
    answer: str
    act: str = ""
    wording: str = ""


@dataclass(frozen=True)
class Conversation:
    """A conversation; boxes: {slot name: boxes}; mask_ids: masks of its [SEG] tokens, in order; facts: fact ids."""

    turns: tuple[Turn, ...]
    boxes: Mapping[str, tuple[Box, ...]] = field(default_factory=dict)
    mask_ids: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


def line_of(columns: Mapping, conversation: Conversation, provenance: Mapping) -> dict:
    """Return the output line. ``columns``: ids of its image; ``provenance``: engine and digests."""
    turns = [
        {"question": turn.question, "answer": turn.answer, "act": turn.act, "wording": turn.wording}
        for turn in conversation.turns
    ]
    boxes = {name: [list(box) for box in slot_boxes] for name, slot_boxes in conversation.boxes.items()}
    content = {
        "turns": turns,
        "boxes": boxes,
        "mask_ids": list(conversation.mask_ids),
        "facts": list(conversation.facts),
    }
    return dict(columns) | {"engine": provenance["engine"]} | content | {"digests": provenance["digests"]}


_NUMBER = r"-?\d+(?:\.\d+)?"
_BOX_TEXT = r"\[\s*" + r"\s*,\s*".join([f"({_NUMBER})"] * 4) + r"\s*\]"
_BOX = re.compile(_BOX_TEXT)
_BOX_LIST = re.compile(rf"{_BOX_TEXT}(?:(?:,| and|, and) {_BOX_TEXT})*".replace(f"({_NUMBER})", _NUMBER))
_SLOT = re.compile(r"<box:([^<>]+)>")


def format_boxes(boxes: Sequence[Box]) -> str:
    """Return boxes as text: "[0.10, 0.20, 0.30, 0.40] and [...]"."""
    *first, last = (f"[{', '.join(f'{value:.{DECIMALS}f}' for value in box)}]" for box in boxes)
    return f"{', '.join(first)} and {last}" if first else last


def to_messages(conversation: Conversation) -> list[dict[str, str]]:
    """Return the messages of a conversation, with boxes written out."""
    return [
        {"role": role, "text": _SLOT.sub(lambda hit: format_boxes(conversation.boxes[hit[1]]), text)}
        for turn in conversation.turns
        for role, text in (("user", turn.question), ("assistant", turn.answer))
    ]


def replace_boxes_by_slots(
    texts: Sequence[str], phrases: Sequence[Phrase]
) -> tuple[list[str], dict[str, tuple[Box, ...]]]:
    """Replace written boxes by slots; return the texts and {slot name: boxes}.

    Consecutive boxes ("[…] and […]") share one slot. Boxes of phrases get back their full precision; other boxes stay
    as written.
    """
    exact = {round_box(box): box for phrase in phrases for box in phrase.boxes}
    names: dict[tuple[Box, ...], str] = {}

    def slotted(hit: re.Match) -> str:
        written_boxes = [tuple(map(float, corners)) for corners in _BOX.findall(hit.group())]
        if not all(box in exact for box in written_boxes):
            return hit.group()
        boxes = tuple(exact[box] for box in written_boxes)
        return box_slot(names.setdefault(boxes, f"box {len(names) + 1}"))

    slotted_texts = [_BOX_LIST.sub(slotted, text) for text in texts]
    return slotted_texts, {name: boxes for boxes, name in names.items()}


def round_box(box: Box) -> tuple[float, ...]:
    """Return a box as it is written, with two decimals."""
    return tuple(map(round_coordinate, box))
