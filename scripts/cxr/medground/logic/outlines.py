"""Robustness of queries: whether they keep their answer when all outlines are shifted outwards or inwards.

Outlines are uncertain by about a pixel; a rim of that width is over 15 % of the area of a region under 27 px. With
shifted outlines, regions may also merge, split, appear or vanish.
"""

from collections.abc import Mapping, Sequence

from cxr.medground.logic.decide import Decider, Query
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.options import LogicOptions
from cxr.medground.logic.scene import build_scene

ROBUST = 2
"""Grade of a query that keeps its answer for both shifts."""
ANSWER_CHANGES = -1
"""Grade of a query with another answer for one shift: it is never asked."""


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
        """Return for how many shifts a query keeps its answer ``target``: 0 to :data:`ROBUST`.

        Return :data:`ANSWER_CHANGES` if it has another answer for one shift.
        """
        grade = self._least
        for decider, twins in self._moved:
            if not decider.supports(query) or not (answer := decider.answer(query)).decidable:
                continue
            if set(answer.selected) != {twins.get(region) for region in target}:
                return ANSWER_CHANGES
            grade += 1
        return grade
