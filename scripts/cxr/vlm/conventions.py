"""Conventions of box coordinates in prompts, targets and answers, and the wording of localization questions.

Boxes of samples are fractions (x1, y1, x2, y2) of the image's width and height. The convention of a model is declared,
or measured on validation samples. It is never guessed from the size of the numbers in an answer.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cxr.base.errors import UserError
from cxr.base.resources import load_resource

RESOURCE_FILES = ("vlm/wording.yaml",)
GRID = 1000  # cells per side of the grid of reference boxes
_SLOT = re.compile(r"\{(query|form|coordinates)\}")


@dataclass(frozen=True)
class InputSize:
    """Width and height, in pixels, of an image as the model sees it, after its processor has resized the image."""

    width: int
    height: int


@dataclass(frozen=True)
class Convention:
    """A convention of box coordinates. ``scale`` is the coordinate of the right or lower edge of the image.

    If ``scale`` is None, coordinates are pixels of the image as the model sees it. ``decimals`` is the number of
    decimals. If ``y_first``, boxes are y1, x1, y2, x2. ``key`` is the name of a box in JSON. ``sentence_decimals`` is
    the number of decimals inside a sentence, 0 for as many as in JSON. If ``short``, 0.50 is written 0.5 in sentences.
    """

    name: str
    scale: float | None
    decimals: int = 0
    y_first: bool = False
    key: str = "bbox_2d"
    sentence_decimals: int = 0
    short: bool = False

    def sides(self, size: InputSize) -> np.ndarray:
        """Return the factors, float64 (4,), from fractions x1, y1, x2, y2 to coordinates of this convention."""
        sides = (size.width, size.height) if self.scale is None else (self.scale, self.scale)
        return np.array([*sides, *sides], np.float64)

    def write(self, box: Sequence[float], size: InputSize) -> str:
        """Format a box, in fractions of an image of ``size``, as four numbers in brackets."""
        return f"[{', '.join(self._numbers(box, size, self.decimals))}]"

    def _numbers(self, box: Sequence[float], size: InputSize, decimals: int) -> list[str]:
        values = np.asarray(box, np.float64) * self.sides(size)
        if self.y_first:
            values = values[[1, 0, 3, 2]]
        if not decimals:
            return [str(int(value)) for value in np.floor(values + 0.5)]
        return [f"{value:.{decimals}f}" for value in values]

    def write_list(self, boxes: Sequence[Sequence[float]], size: InputSize) -> str:
        """Format boxes as part of a sentence, separated by commas, with "and" before the last box."""
        numbers = [self._numbers(box, size, self.sentence_decimals or self.decimals) for box in boxes]
        if self.short:
            numbers = [[str(float(number)) for number in box] for box in numbers]
        texts = [f"[{', '.join(box)}]" for box in numbers]
        return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))

    def answer(self, boxes: Sequence[Sequence[float]], size: InputSize) -> str:
        """Format boxes as a JSON answer: one object for a single box, otherwise a list of objects."""
        texts = [f'{{"{self.key}": {self.write(box, size)}}}' for box in boxes]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

    def read(self, numbers: Sequence[float], size: InputSize) -> np.ndarray:
        """Convert four numbers of an answer to fractions x1, y1, x2, y2, float64 (4,), which are not clipped to 0–1."""
        values = np.asarray(numbers, np.float64)
        if self.y_first:
            values = values[[1, 0, 3, 2]]
        return values / self.sides(size)


CONVENTIONS = {
    each.name: each
    for each in (
        Convention("grid1000", 1000),
        Convention("pixels_resized", None),
        Convention("unit", 1, decimals=3, sentence_decimals=2),
        Convention("unit_short", 1, decimals=3, sentence_decimals=2, short=True),
        Convention("yx1000", 1000, y_first=True, key="box_2d"),
    )
}
"""Conventions by name. A new convention needs an entry here and a sentence in ``resources/vlm/wording.yaml``."""
PROBED_CONVENTIONS = tuple(name for name, one in CONVENTIONS.items() if not one.short)
"""Conventions that are compared on validation samples. ``unit_short`` differs from ``unit`` only in final zeros."""
PALIGEMMA = Convention("loc1024", 1024, y_first=True)  # convention of ``<loc0123>`` tokens in any answer


def find_convention(name: str) -> Convention:
    """Return the convention ``name``. Raises UserError for an unknown name."""
    if name not in CONVENTIONS:
        raise UserError(f"convention is {name!r}: choose one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[name]


def localization_question(query: str, convention: Convention) -> str:
    """Return the question for the boxes of ``query``, with the required form of the answer."""
    wordings = load_resource(RESOURCE_FILES[0])
    form = wordings["form"].get(convention.name, wordings["form"]["default"])
    slot_values = {"query": query, "form": form, "coordinates": wordings["coordinates"][convention.name]}
    return _SLOT.sub(lambda slot: slot_values[slot[1]], wordings["locate"])
