"""A conversation about one image, and its line in ``results/radvlm/conversations/{source}/conversations.jsonl``.

A line has conversation_id, source, image_id, study_id, subject_id, split, grounded, number (from 0, where an image has
several of a kind), engine, turns (question, answer, act, wording), boxes, mask_ids, facts, digests. An answer names its
boxes by a slot ``<box:name>``; ``boxes`` gives the boxes of each name as fractions of the original picture's width and
height. Each ``[SEG]`` of the answers is one of ``mask_ids``, in order. ``facts``: ids that the turns rest on; of a
sentence of the report its study and number (``s1#2``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cxr.instructions.record import Box

STANDARD, GROUNDED = "standard", "grounded"


@dataclass(frozen=True)
class Turn:
    """A round: a question and its answer. act: what the question asks for, wording: the id of its words; both empty
    where a language model has made them.
    """

    question: str
    answer: str
    act: str = ""
    wording: str = ""


@dataclass(frozen=True)
class Conversation:
    """The turns of a conversation; boxes: {name of a slot: boxes}; mask_ids: of its [SEG], in order; facts: ids."""

    turns: tuple[Turn, ...]
    boxes: Mapping[str, tuple[Box, ...]] = field(default_factory=dict)
    mask_ids: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()


def line_of(columns: Mapping, conversation: Conversation, provenance: Mapping) -> dict:
    """Return the line of a conversation. ``columns``: of its image; ``provenance``: its engine and digests."""
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
