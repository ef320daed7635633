"""A page that replays conversations about images: turn by turn, with the boxes and the mask of each on the image.

It is one file that needs no server and no network; its content security policy lets no other script run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

import cv2
import numpy as np

from cxr.base.atomic import atomic
from cxr.base.paths import RESOURCES
from cxr.plotting.encoding import encoded
from cxr.plotting.offline import data_url, hash_of, inert, picture_bytes
from cxr.plotting.overlay import LONGEST, SIDES

RESOURCE_FILES = ("replay/page.html", "replay/page.css", "replay/page.js")
MASK = (0, 159, 230, 110)
"""Blue, green, red and opacity of a mask."""
Boxes = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Turn:
    """A turn. failure: in words, instead of an answer; boxes, right: of the answer, and those expected, as fractions
    x1, y1, x2, y2 of the image; mask: bool (H, W) of the image's size, or None; expected: the answer that is right.
    """

    question: str
    answer: str
    failure: str = ""
    boxes: Boxes = ()
    right: Boxes = ()
    mask: np.ndarray | None = None
    expected: str = ""


@dataclass(frozen=True)
class Conversation:
    """Turns about one image, grey uint8 (H, W). about: a sentence; sides: the patient's, from the image's left."""

    title: str
    about: str
    image: np.ndarray
    turns: Sequence[Turn]
    sides: tuple[str, str] = SIDES


def write_replay(path: str | Path, title: str, conversations: Sequence[Conversation], quality: int) -> None:
    """Write the page. ``quality``: of its pictures as JPEG; 0 keeps every grey level. Raises ValueError without any."""
    if not conversations or not all(conversation.turns for conversation in conversations):
        raise ValueError("a replay needs conversations of one turn at least")
    page, style, script = ((RESOURCES / name).read_text(encoding="utf-8") for name in RESOURCE_FILES)
    script = f"(() => {{\n'use strict';\n{script}}})();\n"
    text = Template(page).substitute(
        title=escape(title),
        style=style,
        style_hash=hash_of(style),
        script=script,
        script_hash=hash_of(script),
        data=inert({"cases": [_conversation_data(conversation, quality) for conversation in conversations]}),
    )
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def _conversation_data(conversation: Conversation, quality: int) -> dict:
    scale = min(1.0, LONGEST / max(conversation.image.shape))
    height, width = (max(1, round(side * scale)) for side in conversation.image.shape)
    image = (
        cv2.resize(conversation.image, (width, height), interpolation=cv2.INTER_AREA)
        if scale < 1
        else conversation.image
    )
    turns = [
        {
            "question": turn.question, "answer": turn.answer, "failure": turn.failure, "expected": turn.expected,
            "boxes": _rounded(turn.boxes), "right": _rounded(turn.right),
            "mask": None if turn.mask is None or not turn.mask.any() else _mask(turn.mask, (width, height)),
        }
        for turn in conversation.turns
    ]  # fmt: skip
    fields = {
        "title": conversation.title,
        "about": conversation.about,
        "sides": list(conversation.sides),
        "width": width,
        "height": height,
    }
    return fields | {"picture": data_url(*picture_bytes(image, quality)), "turns": turns}


def _mask(mask: np.ndarray, size: tuple[int, int]) -> str:
    small = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    coloured = np.zeros((*small.shape, 4), np.uint8)
    coloured[small > 0] = MASK
    return data_url("image/png", encoded(".png", coloured))


def _rounded(boxes: Boxes) -> list[list[float]]:
    return [[round(float(edge), 4) for edge in box] for box in boxes]
