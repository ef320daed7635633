"""Which regions a query selects, and whether it is decidable: has exactly one answer."""

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
"""{ordinal: (attribute, 1 for the smallest value, -1 for the largest)}."""
NUMBERS = LogicOptions()
RELATIONS = ("left_of", "right_of", "above", "below", "inside")


@dataclass(frozen=True)
class Reference:
    """The region that a relation refers to, described by atoms and at most one ordinal."""

    atoms: tuple[str, ...]
    ordinal: str = ""


@dataclass(frozen=True)
class Query:
    """A conjunction of atoms, at most one relation to a reference, then at most one ordinal.

    ``ordinal``: a key of :data:`AXES`, or ``nearest`` to ``reference`` (``relation`` is then empty); ``nth``: 1 for the
    first; ``number``: the size of the answer that the words state, 0 for none.
    """

    atoms: tuple[str, ...]
    relation: str = ""
    reference: Reference | None = None
    ordinal: str = ""
    nth: int = 1
    number: int = 0

    def families(self) -> set[str]:
        """Return the families that the query uses."""
        has_ordinal = self.ordinal and self.ordinal != "nearest"
        parts = {"relation": self.reference, "ordinal": has_ordinal, "number": self.number}
        return {atom_family(atom) for atom in self.atoms} | {name for name, part in parts.items() if part}


class Answer(NamedTuple):
    """``selected``: numbers of regions; ``reason``: why the query is not decidable, "" if it is."""

    selected: tuple[int, ...]
    reason: str = ""

    @property
    def decidable(self) -> bool:
        """Whether ``selected`` is the query's only possible answer."""
        return not self.reason


def answer_from_values(values: np.ndarray) -> Answer:
    """Return the regions whose value is yes; none may be unclear. ``values`` (N,): of a conjunction."""
    selected = tuple((values == YES).nonzero()[0].tolist())
    return Answer(selected, "doubtful" if (values == UNCLEAR).any() else "" if selected else "empty")


def nth_region(value: np.ndarray, regions: Sequence[int], sign: int, nth: int, gap: float, ratio: bool) -> int | None:
    """Return the nth of ``regions`` by a value times ``sign``; None if the next is within ``gap``, or its ``ratio``."""
    if len(regions) < max(2, nth) or any(math.isnan(value[region]) for region in regions):
        return None
    order = sorted(regions, key=lambda region: (sign * value[region], region))
    for pair in pairwise(order[max(0, nth - 2) : nth + 1]):  # with the one before and the one after
        near, far = sorted(float(value[region]) for region in pair)
        if (far < near * (1 + gap)) if ratio else (far - near < gap):
            return None
    return order[nth - 1]


class Decider:
    """Answer queries about one image."""

    def __init__(self, scene: Scene, numbers: LogicOptions = NUMBERS):
        self.scene, self.numbers = scene, numbers
        self.atoms: Mapping[str, np.ndarray] = evaluate_atoms(scene, numbers)

    def conjunction(self, atoms: tuple[str, ...]) -> np.ndarray:
        """Return the values (N,) of a conjunction. Raises KeyError for an atom that the scene lacks."""
        return np.minimum.reduce([np.full(len(self.scene), YES, np.uint8), *(self.atoms[atom] for atom in atoms)])

    def is_closed(self, atoms: tuple[str, ...]) -> bool:
        """Return whether every class that the atoms allow is closed, that is, all its regions are listed."""
        class_names = [atom.partition(":")[2] for atom in atoms if atom.startswith("class:")]
        open_classes = [self.scene.classes[name] for name in self.scene.open_classes]
        return not any(all(map(words.includes, class_names)) for words in open_classes)

    def resolve_reference(self, reference: Reference) -> int | None:
        """Return the region that a reference means; None unless it is exactly one."""
        answer = self.answer(Query(reference.atoms, ordinal=reference.ordinal))
        return answer.selected[0] if answer.decidable and len(answer.selected) == 1 else None

    def nearest_region(self, regions: tuple[int, ...], reference: int) -> int | None:
        """Return the region whose centroid is nearest to the reference's; None if another one is nearly as near."""
        scene, other_regions = self.scene, tuple(region for region in regions if region != reference)
        distance = np.hypot(scene.cx - scene.cx[reference], scene.cy - scene.cy[reference])
        return nth_region(distance, other_regions, 1, 1, self.numbers.nearest_gap, ratio=True)

    def ordinal_region(self, regions: tuple[int, ...], name: str, nth: int) -> int | None:
        """Return the nth of ``regions`` by an ordinal; None if it is not clear."""
        if nth > self.numbers.farthest_nth:
            return None
        attribute, direction = AXES[name]
        is_area = attribute == "area"
        gap = self.numbers.area_gap if is_area else self.numbers.position_gap
        return nth_region(getattr(self.scene, attribute), regions, direction, nth, gap, ratio=is_area)

    def supports(self, query: Query) -> bool:
        """Return whether the scene has every atom of a query."""
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


ROBUST = 2  # grade of a query that keeps its answer for both shifts
ANSWER_CHANGES = -1  # grade of a query with another answer for one shift: it is never asked


class Outlines:
    """Grades queries of one image by whether their answer survives outlines shifted by a pixel, their uncertainty.

    ``shifted_rows``: the image's rows of the table of shifted regions; if empty, every query is robust.
    """

    def __init__(self, image: Mapping, shifted_rows: Sequence[Mapping], facts: Facts, side: int):
        self._deciders = []
        self._least = 0 if shifted_rows else ROBUST
        for px in sorted({row["px"] for row in shifted_rows}):
            rows = [row for row in shifted_rows if row["px"] == px]
            twins = {row["twin"]: at for at, row in enumerate(rows) if row["twin"] is not None}
            self._deciders.append((Decider(build_scene(image, rows, facts, side)), twins))

    def grade(self, query: Query, target: tuple[int, ...]) -> int:
        """Return for how many shifts a query keeps its answer; ANSWER_CHANGES if one gives it another answer."""
        grade = self._least
        for decider, twins in self._deciders:
            if not decider.supports(query) or not (answer := decider.answer(query)).decidable:
                continue
            if set(answer.selected) != {twins.get(region) for region in target}:
                return ANSWER_CHANGES
            grade += 1
        return grade
