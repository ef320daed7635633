"""Which queries keep their answer when every region's outline lies a few pixels further out, or further in.

The outline of a mask is uncertain by about a pixel, and the rim of that width is over 15 % of the area of what is less
than 27 px wide. Regions then meet, fall apart, appear and vanish too.
"""

from collections.abc import Mapping, Sequence

from cxr.medground.logic.decide import Decider, Query
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.options import LogicOptions
from cxr.medground.logic.scene import build_scene

ROBUST = 2
"""The grade of a query that keeps its answer: further out and further in."""
ANSWER_CHANGES = -1
"""The grade of a query that has another answer somewhere: it is never asked."""


class Outlines:
    """Grade queries of one image by whether their answer survives shifted outlines.

    ``shifted_rows``: the image's rows of :data:`cxr.medground.regions.make_regions.SHIFTED`; if empty, every query is
    robust.
    """

    def __init__(self, image: Mapping, shifted_rows: Sequence[Mapping], facts: Facts, side: int, numbers: LogicOptions):
        self._moved = []
        self._least = 0 if shifted_rows else ROBUST
        for px in sorted({row["px"] for row in shifted_rows}):
            rows = [row for row in shifted_rows if row["px"] == px]
            twins = {row["twin"]: at for at, row in enumerate(rows) if row["twin"] is not None}
            self._moved.append((Decider(build_scene(image, rows, facts, side), numbers), twins))

    def grade(self, query: Query, target: tuple[int, ...]) -> int:
        """Return ROBUST where the answer of a query, decidable with ``target`` as it is, stays the same.

        Else for how many of the shifted outlines it does, and OTHER where another answer is decidable for one.
        """
        grade = self._least
        for decider, twins in self._moved:
            if not decider.supports(query) or not (answer := decider.answer(query)).decidable:
                continue
            if set(answer.selected) != {twins.get(region) for region in target}:
                return ANSWER_CHANGES
            grade += 1
        return grade
