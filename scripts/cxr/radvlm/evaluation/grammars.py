"""Grammars: how a model writes boxes. Each model declares its grammar; it is never guessed from the numbers.

A grammar parses a text into boxes as fractions of the image. Swapped corners, numbers without brackets, lists of
another length, boxes without area and boxes centred outside the image are malformed; they are counted but not used.
The last case means another grid: ``[0, 0, 500, 500]`` would be clipped to the whole image.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cxr.base.errors import UserError
from cxr.vlm.conventions import CONVENTIONS, Convention, InputSize
from cxr.vlm.reading import MOST_BOXES, read_boxes

BINS = 100
"""Bins per side in the grammar bins."""
_BIN = re.compile(r"<x(\d{1,3})>\s*<y(\d{1,3})>\s*<x(\d{1,3})>\s*<y(\d{1,3})>")
_ANY_BIN = re.compile(r"<[xy]\d{1,3}>")
Crop = tuple[float, float, float, float]
WHOLE_IMAGE: Crop = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class AnswerBoxes:
    """Boxes of an answer, float64 (N, 4), fractions of the image, in order; malformed: number of malformed boxes."""

    boxes: np.ndarray
    malformed: int = 0


NO_BOXES = AnswerBoxes(np.zeros((0, 4)))
Grammar = Callable[[str, tuple[int, int]], AnswerBoxes]
"""Parses a text about an image of (width, height), in pixels as the model sees it."""


def load_grammar(name: str, crop: Crop = WHOLE_IMAGE) -> Grammar:
    """Return a grammar: unit, percent, hundred, grid1000, pixels, bins, or a convention of ``cxr.vlm``.

    ``crop``: part of the image that the model saw, in fractions; boxes are mapped back to the whole image. Raises
    UserError for an unknown name.
    """
    if name == "bins":
        return lambda text, image_size: _map_from_crop(_read_bins(text), crop)
    if name not in SCALES and name not in CONVENTIONS:
        raise UserError(f"the grammar of boxes is {name!r}: choose one of {', '.join(GRAMMARS)}")
    convention = SCALES.get(name) or CONVENTIONS[name]
    return lambda text, image_size: _map_from_crop(_read_lists(text, convention, image_size), crop)


SCALES = {
    "percent": Convention("percent", 100, decimals=1),
    "hundred": Convention("hundred", 100),
    "pixels": Convention("pixels", None),
}
"""Grammars that are not conventions of our runs."""
GRAMMARS = ("unit", "unit_short", "percent", "hundred", "bins", "grid1000", "pixels")
"""Grammars that a model may declare in the settings."""


def _read_lists(text: str, convention: Convention, image_size: tuple[int, int]) -> AnswerBoxes:
    reading = read_boxes(text, convention, InputSize(*image_size))
    lost = sum(note.startswith("left_out:") for note in reading.notes)
    if reading.outcome != "boxes":
        return AnswerBoxes(NO_BOXES.boxes, int(reading.outcome == "unreadable" and reading.reason != "nothing"))
    if "bare" in reading.notes:
        return AnswerBoxes(NO_BOXES.boxes, len(reading.boxes) + lost)
    good = ~(np.array(reading.swapped, bool) | np.array(reading.beyond, bool))
    return AnswerBoxes(reading.boxes[good], int((~good).sum()) + lost)


def _read_bins(text: str) -> AnswerBoxes:
    """Parse ``<x12><y34><x56><y78>``; a bin stands for its centre."""
    boxes, bad = [], 0
    for match in _BIN.finditer(text):
        box = (np.array([int(digits) for digits in match.groups()], np.float64) + 0.5) / BINS
        if (box <= 1).all() and (box[2:] > box[:2]).all():
            boxes.append(box)
        else:
            bad += 1
    bad += bool(len(_ANY_BIN.findall(text)) % 4)
    if len(boxes) > MOST_BOXES:
        boxes = list(np.unique(boxes, axis=0))  # endless answers repeat one box
    if len(boxes) > MOST_BOXES:
        return AnswerBoxes(NO_BOXES.boxes, 1)
    return AnswerBoxes(np.array(boxes).reshape(-1, 4), bad)


def _map_from_crop(answer_boxes: AnswerBoxes, crop: Crop) -> AnswerBoxes:
    """Map boxes of a crop to fractions of the whole image."""
    if crop == WHOLE_IMAGE or not len(answer_boxes.boxes):
        return answer_boxes
    x1, y1, x2, y2 = crop
    sides, start = np.array([x2 - x1, y2 - y1] * 2), np.array([x1, y1] * 2)
    return AnswerBoxes(answer_boxes.boxes * sides + start, answer_boxes.malformed)
