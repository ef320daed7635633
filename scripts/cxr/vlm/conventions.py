"""How a model writes the coordinates of boxes: each convention in one entry, used in prompts, targets and answers.

Boxes of samples are fractions of the picture's width and height, x1, y1, x2, y2. A convention is declared or probed,
never guessed from the size of an answer's numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cxr.base.errors import UserError


@dataclass(frozen=True)
class Seen:
    """Width and height, in pixels, of a picture as the model sees it: after its processor has resized it."""

    width: int
    height: int


@dataclass(frozen=True)
class Convention:
    """scale: what 1 is written as; None: the sides, in pixels, of the picture as the model sees it. decimals: of each
    number. y_first: whether boxes are y1, x1, y2, x2. key: the name of a box in JSON. said: decimals in a sentence,
    where they are others; short: a number there ends at its last digit but zero, and has one decimal at least.
    """

    name: str
    scale: float | None
    decimals: int = 0
    y_first: bool = False
    key: str = "bbox_2d"
    said: int = 0
    short: bool = False

    def sides(self, size: Seen) -> np.ndarray:
        """Return what the fractions x1, y1, x2, y2 are multiplied by, float64 (4,)."""
        sides = (size.width, size.height) if self.scale is None else (self.scale, self.scale)
        return np.array([*sides, *sides], np.float64)

    def write(self, box: Sequence[float], size: Seen) -> str:
        """Return a box as its four numbers in brackets."""
        return f"[{', '.join(self._numbers(box, size, self.decimals))}]"

    def _numbers(self, box: Sequence[float], size: Seen, decimals: int) -> list[str]:
        values = np.asarray(box, np.float64) * self.sides(size)
        if self.y_first:
            values = values[[1, 0, 3, 2]]
        if not decimals:
            return [str(int(value)) for value in np.floor(values + 0.5)]
        return [f"{value:.{decimals}f}" for value in values]

    def listed(self, boxes: Sequence[Sequence[float]], size: Seen) -> str:
        """Return the boxes as they stand in a sentence: commas between them, and before the last the word and."""
        numbers = [self._numbers(box, size, self.said or self.decimals) for box in boxes]
        if self.short:
            numbers = [[str(float(number)) for number in box] for box in numbers]
        texts = [f"[{', '.join(box)}]" for box in numbers]
        return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))

    def answer(self, boxes: Sequence[Sequence[float]], size: Seen) -> str:
        """Return the answer that holds these boxes: one object, or a list of several."""
        texts = [f'{{"{self.key}": {self.write(box, size)}}}' for box in boxes]
        return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"

    def read(self, numbers: Sequence[float], size: Seen) -> np.ndarray:
        """Return the fractions x1, y1, x2, y2, float64 (4,), that four numbers of an answer mean, not yet clipped."""
        values = np.asarray(numbers, np.float64)
        if self.y_first:
            values = values[[1, 0, 3, 2]]
        return values / self.sides(size)


CONVENTIONS = {
    each.name: each
    for each in (
        Convention("grid1000", 1000),
        Convention("pixels_resized", None),
        Convention("unit", 1, decimals=3, said=2),
        Convention("unit_short", 1, decimals=3, said=2, short=True),
        Convention("yx1000", 1000, y_first=True, key="box_2d"),
    )
}
"""By name. A further convention is a further entry, and its sentence in ``resources/vlm/wording.yaml``."""
PROBED = tuple(name for name, one in CONVENTIONS.items() if not one.short)
"""Conventions that a probe tells apart: how short a number is written changes nothing that is read."""
PALIGEMMA = Convention("loc1024", 1024, y_first=True)
"""What ``<loc0123>`` tokens mean in any answer: they name their own scale."""


def convention_of(name: str) -> Convention:
    """Return a convention by its name. Raises UserError for an unknown one."""
    if name not in CONVENTIONS:
        raise UserError(f"convention is {name!r}: choose one of {', '.join(CONVENTIONS)}")
    return CONVENTIONS[name]
