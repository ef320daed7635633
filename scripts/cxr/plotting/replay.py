"""Write a page that replays conversations about images, turn by turn, with the boxes and mask of each turn."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.plotting.encoding import data_url, encode_grey_image, encode_image, write_offline_page
from cxr.plotting.overlay import SIDES, shrink_for_drawing

RESOURCE_FILES = ("replay/page.html", "replay/page.css", "replay/page.js")
MASK_BGRA = (0, 159, 230, 110)
"""Colour of a mask: blue, green, red, opacity."""
Boxes = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Turn:
    """A question with the model's answer, or with the reason why there is none (``failure``), and the expected answer.
    Boxes are x1, y1, x2, y2 as fractions of the image. ``mask`` is the mask of the answer, bool (H, W) as the image."""

    question: str
    answer: str
    failure: str = ""
    boxes: Boxes = ()
    expected_boxes: Boxes = ()
    mask: np.ndarray | None = None
    expected: str = ""


@dataclass(frozen=True)
class Conversation:
    """Turns about one image, uint8 (H, W). ``sides``: letters of the patient's sides, at the image's left and right."""

    title: str
    description: str
    image: np.ndarray
    turns: Sequence[Turn]
    sides: tuple[str, str] = SIDES


def write_replay(path: str | Path, title: str, conversations: Sequence[Conversation], quality: int) -> None:
    """Write a page that replays ``conversations``. ``quality``: JPEG quality of its images, 0 for lossless PNG. Raises
    ValueError if there is no conversation, or if a conversation has no turn."""
    if not conversations or not all(conversation.turns for conversation in conversations):
        raise ValueError("a replay needs at least one conversation, and each needs at least one turn")
    cases = {"cases": [_conversation_data(conversation, quality) for conversation in conversations]}
    write_offline_page(path, RESOURCES / "replay", ["page.js"], title=title, data=cases)


def _conversation_data(conversation: Conversation, quality: int) -> dict:
    image, _ = shrink_for_drawing(conversation.image, np.zeros(conversation.image.shape, bool))
    height, width = image.shape
    turns = [
        {
            "question": turn.question, "answer": turn.answer, "failure": turn.failure, "expected": turn.expected,
            "boxes": _round_boxes(turn.boxes), "right": _round_boxes(turn.expected_boxes),
            "mask": None if turn.mask is None or not turn.mask.any() else _mask_url(turn.mask, (width, height)),
        }
        for turn in conversation.turns
    ]  # fmt: skip
    return {
        "title": conversation.title, "about": conversation.description, "sides": list(conversation.sides),
        "width": width, "height": height, "picture": data_url(*encode_grey_image(image, quality)), "turns": turns,
    }  # fmt: skip


def _mask_url(mask: np.ndarray, size: tuple[int, int]) -> str:
    small = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    coloured = np.zeros((*small.shape, 4), np.uint8)
    coloured[small > 0] = MASK_BGRA
    return data_url("image/png", encode_image(".png", coloured))


def _round_boxes(boxes: Boxes) -> list[list[float]]:
    return [[round(float(edge), 4) for edge in box] for box in boxes]
