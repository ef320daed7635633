"""The answer of a query is the set of regions that it selects. A query is decidable if it has exactly one answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from cxr.medground.logic.atoms import NO, UNCLEAR, YES, LogicOptions, atom_family, evaluate_atoms, evaluate_relation
from cxr.medground.logic.facts import Facts
from cxr.medground.logic.scene import Scene, build_scene

AXES = {
    "largest": ("area", -1), "smallest": ("area", 1), "leftmost": ("cx", 1), "rightmost": ("cx", -1),
    "topmost": ("cy", 1), "lowest": ("cy", -1),
}  # fmt: skip
"""{ordinal: (attribute, sign)}. The sign is 1 if the smallest value comes first, and -1 if the largest does."""
NUMBERS = LogicOptions()
RELATIONS = ("left_of", "right_of", "above", "below", "inside")


@dataclass(frozen=True)
class Reference:
    """The region to which a relation refers, such as "the largest nucleus": atoms ("class:nucleus") and an ordinal."""

    atoms: tuple[str, ...]
    ordinal: str = ""


@dataclass(frozen=True)
class Query:
    """A query in logical form: atoms such as "size:small", at most one relation to a reference, at most one ordinal.

    ``ordinal``: a key of :data:`AXES`, or "nearest" for the region nearest to ``reference``, without a ``relation``.
    ``nth``: 2 in "the second from the left". ``number``: number that the text states, 0 for none, -1 for "all"."""

    atoms: tuple[str, ...]
    relation: str = ""
    reference: Reference | None = None
    ordinal: str = ""
    nth: int = 1
    number: int = 0

    def families(self) -> set[str]:
        """Return the families of attributes that the query uses, such as size, relation or number."""
        has_ordinal = self.ordinal and self.ordinal != "nearest"
        parts = {"relation": self.reference, "ordinal": has_ordinal, "number": self.number}
        return {atom_family(atom) for atom in self.atoms} | {name for name, part in parts.items() if part}


class Answer(NamedTuple):
    """Answer of a query. ``selected``: numbers of regions. ``reason``: why the query is undecidable, or ""."""

    selected: tuple[int, ...]
    reason: str = ""

    @property
    def decidable(self) -> bool:
        """Whether ``selected`` is the query's only possible answer."""
        return not self.reason


def answer_from_values(values: np.ndarray) -> Answer:
    """Return the answer of a conjunction of atoms, whose value for each region is in ``values`` (N,). It is decidable
    if at least one value is YES and none is UNCLEAR."""
    selected = tuple((values == YES).nonzero()[0].tolist())
    return Answer(selected, "doubtful" if (values == UNCLEAR).any() else "" if selected else "empty")


def nth_region(value: np.ndarray, regions: Sequence[int], sign: int, nth: int, gap: float, ratio: bool) -> int | None:
    """Return the nth of ``regions`` in the order of ``sign * value``. Return None if there are fewer than ``nth`` or
    only one, if a value is NaN, or if a neighbour in the order differs by less than ``gap``. If ``ratio``, ``gap`` is a
    fraction of the smaller value. ``value``: value of each region of the scene."""
    if len(regions) < max(2, nth) or any(math.isnan(value[region]) for region in regions):
        return None
    order = sorted(regions, key=lambda region: (sign * value[region], region))
    for pair in pairwise(order[max(0, nth - 2) : nth + 1]):  # with the one before and the one after
        near, far = sorted(float(value[region]) for region in pair)
        if (far < near * (1 + gap)) if ratio else (far - near < gap):
            return None
    return order[nth - 1]


class Decider:
    """Logic of one image: it decides which regions of a scene a query about the image selects."""

    def __init__(self, scene: Scene, numbers: LogicOptions = NUMBERS):
        self.scene, self.numbers = scene, numbers
        self.atoms: Mapping[str, np.ndarray] = evaluate_atoms(scene, numbers)

    def conjunction(self, atoms: tuple[str, ...]) -> np.ndarray:
        """Return for each region, uint8 (N,), the lowest value (NO, UNCLEAR or YES) of the atoms. Raises KeyError for
        an atom that the scene lacks."""
        return np.minimum.reduce([np.full(len(self.scene), YES, np.uint8), *(self.atoms[atom] for atom in atoms)])

    def is_closed(self, atoms: tuple[str, ...]) -> bool:
        """Return whether the scene has all regions that the atoms may mean. False if they may mean regions of an open
        class, of which components were dropped because they are too small."""
        class_names = [atom.partition(":")[2] for atom in atoms if atom.startswith("class:")]
        open_classes = [self.scene.classes[name] for name in self.scene.open_classes]
        return not any(all(map(words.includes, class_names)) for words in open_classes)

    def resolve_reference(self, reference: Reference) -> int | None:
        """Return the only region that a reference describes, or None if it describes none or several."""
        answer = self.answer(Query(reference.atoms, ordinal=reference.ordinal))
        return answer.selected[0] if answer.decidable and len(answer.selected) == 1 else None

    def nearest_region(self, regions: tuple[int, ...], reference: int) -> int | None:
        """Return the one of ``regions`` that is nearest to ``reference``, or None if another one is nearly as near."""
        scene, other_regions = self.scene, tuple(region for region in regions if region != reference)
        distance = np.hypot(scene.cx - scene.cx[reference], scene.cy - scene.cy[reference])
        return nth_region(distance, other_regions, 1, 1, self.numbers.nearest_gap, ratio=True)

    def ordinal_region(self, regions: tuple[int, ...], name: str, nth: int) -> int | None:
        """Return the nth of ``regions`` by the ordinal ``name``, such as leftmost, None if others are nearly equal."""
        if nth > self.numbers.farthest_nth:
            return None
        attribute, direction = AXES[name]
        is_area = attribute == "area"
        gap = self.numbers.area_gap if is_area else self.numbers.position_gap
        return nth_region(getattr(self.scene, attribute), regions, direction, nth, gap, ratio=is_area)

    def supports(self, query: Query) -> bool:
        """Return whether the scene has a value for every atom of a query and of its reference."""
        return {*query.atoms, *(query.reference.atoms if query.reference else ())} <= self.atoms.keys()

    def answer(self, query: Query) -> Answer:
        """Return the answer of a query. Raises KeyError for an atom that the scene lacks."""
        values, reference = self.conjunction(query.atoms), None
        if query.reference:
            reference = self.resolve_reference(query.reference)
            if reference is None:
                return Answer((), "reference")
            if query.relation:
                values = np.minimum(values, evaluate_relation(query.relation, reference, self.scene, self.numbers))
            else:
                values[reference] = NO
        answer = answer_from_values(values)
        if not answer.decidable:
            return answer
        if (query.ordinal or query.number) and not self.is_closed(query.atoms):
            return Answer(answer.selected, "open class")
        if query.ordinal:
            is_nearest = query.ordinal == "nearest"
            nearest = self.nearest_region(answer.selected, reference) if is_nearest else None
            region = nearest if is_nearest else self.ordinal_region(answer.selected, query.ordinal, query.nth)
            if region is None:
                return Answer(answer.selected, "ordinal")
            answer = Answer((region,))
        if query.number and len(answer.selected) != query.number:
            return Answer(answer.selected, "number")
        return answer


ROBUST = 2  # grade of a query that keeps its answer for both shifts of the outlines
ANSWER_CHANGES = -1  # grade of a query that has another answer after a shift, and is never asked


class Outlines:
    """Test whether answers of queries about one image stay the same when all outlines are shifted outwards and inwards.
    ``shifted_rows``: the image's rows in the table of shifted regions. Without rows, each query passes. ``side``: side
    of the frame, px."""

    def __init__(self, image: Mapping, shifted_rows: Sequence[Mapping], facts: Facts, side: int):
        self._deciders = []
        self._least = 0 if shifted_rows else ROBUST
        for px in sorted({row["px"] for row in shifted_rows}):
            rows = [row for row in shifted_rows if row["px"] == px]
            twins = {row["twin"]: at for at, row in enumerate(rows) if row["twin"] is not None}
            self._deciders.append((Decider(build_scene(image, rows, facts, side)), twins))

    def grade(self, query: Query, target: tuple[int, ...]) -> int:
        """Return for how many of the two shifts a query still has the answer ``target``, a set of regions (ROBUST:
        both), or ANSWER_CHANGES if a shift gives another answer."""
        grade = self._least
        for decider, twins in self._deciders:
            if not decider.supports(query) or not (answer := decider.answer(query)).decidable:
                continue
            if set(answer.selected) != {twins.get(region) for region in target}:
                return ANSWER_CHANGES
            grade += 1
        return grade
