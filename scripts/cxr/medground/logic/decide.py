"""Which regions a query selects, and whether it is decidable: has exactly one answer."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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

    @property
    def all_atoms(self) -> tuple[str, ...]:
        """The atoms of the query and of its reference."""
        return (*self.atoms, *(self.reference.atoms if self.reference else ()))

    def families(self) -> set[str]:
        """Return the families that the query uses."""
        families = {atom_family(atom) for atom in self.atoms}
        families |= {"relation"} if self.reference else set()
        families |= {"ordinal"} if self.ordinal and self.ordinal != "nearest" else set()
        return families | ({"number"} if self.number else set())


@dataclass(frozen=True)
class Answer:
    """``selected`` and ``doubtful``: numbers of regions; ``reason``: why the query is not decidable, "" if it is."""

    selected: tuple[int, ...]
    doubtful: tuple[int, ...] = ()
    reason: str = ""

    @property
    def decidable(self) -> bool:
        """Whether ``selected`` is the query's only possible answer."""
        return not self.reason


def answer_from_values(values: np.ndarray) -> Answer:
    """Return the regions whose value is yes, and those whose value is unclear. ``values`` (N,): of a conjunction."""
    selected, doubtful = (tuple((values == level).nonzero()[0].tolist()) for level in (YES, UNCLEAR))
    return Answer(selected, doubtful, "doubtful" if doubtful else "" if selected else "empty")


def nth_region(
    value: np.ndarray, regions: tuple[int, ...], direction: int, nth: int, gap: float, *, ratio: bool
) -> int | None:
    """Return the nth of ``regions`` by a value; None if it is too near to the one before or after it.

    ``gap``: smallest difference, as a fraction of the smaller value if ``ratio``.
    """
    if len(regions) < max(2, nth) or any(math.isnan(value[region]) for region in regions):
        return None
    order = sorted(regions, key=lambda region: (direction * value[region], region))
    place = nth - 1
    for first, second in ((place - 1, place), (place, place + 1)):
        if first >= 0 and second < len(order):
            near, far = sorted((float(value[order[first]]), float(value[order[second]])))
            if (far < near * (1 + gap)) if ratio else (far - near < gap):
                return None
    return order[place]


def nearest_region(scene: Scene, regions: tuple[int, ...], reference: int, numbers: LogicOptions) -> int | None:
    """Return the region whose centroid is nearest to the reference's; None if another one is nearly as near."""
    other_regions = tuple(region for region in regions if region != reference)
    distance = np.hypot(scene.cx - scene.cx[reference], scene.cy - scene.cy[reference])
    return nth_region(distance, other_regions, 1, 1, numbers.nearest_gap, ratio=True)


def ordinal_region(scene: Scene, regions: tuple[int, ...], name: str, nth: int, numbers: LogicOptions) -> int | None:
    """Return the nth of ``regions`` by an ordinal; None if it is not clear."""
    if nth > numbers.farthest_nth:
        return None
    attribute, direction = AXES[name]
    gap = numbers.area_gap if attribute == "area" else numbers.position_gap
    return nth_region(getattr(scene, attribute), regions, direction, nth, gap, ratio=attribute == "area")


class Decider:
    """Answer queries about one image."""

    def __init__(self, scene: Scene, numbers: LogicOptions = NUMBERS):
        self.scene, self.numbers = scene, numbers
        self.atoms: Mapping[str, np.ndarray] = evaluate_atoms(scene, numbers)
        self._everything = np.full(len(scene), YES, np.uint8)

    def conjunction(self, atoms: tuple[str, ...]) -> np.ndarray:
        """Return the values (N,) of a conjunction. Raises KeyError for an atom that the scene lacks."""
        return np.minimum.reduce([self.atoms[atom] for atom in atoms]) if atoms else self._everything.copy()

    def is_closed(self, atoms: tuple[str, ...]) -> bool:
        """Return whether every class that the atoms allow is closed, that is, all its regions are listed."""
        class_names = [atom.partition(":")[2] for atom in atoms if atom.startswith("class:")]
        open_classes = [self.scene.classes[name] for name in self.scene.open_classes]
        return not any(all(map(words.includes, class_names)) for words in open_classes)

    def resolve_reference(self, reference: Reference) -> int | None:
        """Return the region that a reference means; None unless it is exactly one."""
        answer = self.answer(Query(reference.atoms, ordinal=reference.ordinal))
        return answer.selected[0] if answer.decidable and len(answer.selected) == 1 else None

    def supports(self, query: Query) -> bool:
        """Return whether the scene has every atom of a query."""
        return all(atom in self.atoms for atom in query.all_atoms)

    def answer(self, query: Query) -> Answer:
        """Return the answer of a query. Raises KeyError for an atom that the scene lacks."""
        values, reference = self.conjunction(query.atoms), None
        if query.reference:
            reference = self.resolve_reference(query.reference)
            if reference is None:
                return Answer((), reason="reference")
            if query.relation:
                values = np.minimum(values, evaluate_relation(query.relation, reference, self.scene, self.numbers))
            else:
                values = values.copy()
                values[reference] = NO
        answer = answer_from_values(values)
        if not answer.decidable:
            return answer
        if (query.ordinal or query.number) and not self.is_closed(query.atoms):
            return Answer(answer.selected, reason="open class")
        if query.ordinal:
            first = (
                nearest_region(self.scene, answer.selected, reference, self.numbers)
                if query.ordinal == "nearest"
                else ordinal_region(self.scene, answer.selected, query.ordinal, query.nth, self.numbers)
            )
            if first is None:
                return Answer(answer.selected, reason="ordinal")
            answer = Answer((first,))
        if query.number and len(answer.selected) != query.number:
            return Answer(answer.selected, reason="number")
        return answer


ROBUST = 2
"""Grade of a query that keeps its answer for both shifts."""
ANSWER_CHANGES = -1
"""Grade of a query with another answer for one shift: it is never asked."""


class Outlines:
    """Grade queries of one image by whether their answer survives shifted outlines.

    Outlines are uncertain by about a pixel; a rim of that width is over 15 % of the area of a region under 27 px. With
    shifted outlines, regions may also merge, split, appear or vanish. ``shifted_rows``: the image's rows of
    :data:`cxr.medground.regions.make_regions.SHIFTED`; if empty, every query is robust.
    """

    def __init__(self, image: Mapping, shifted_rows: Sequence[Mapping], facts: Facts, side: int):
        self._deciders = []
        self._least = 0 if shifted_rows else ROBUST
        for px in sorted({row["px"] for row in shifted_rows}):
            rows = [row for row in shifted_rows if row["px"] == px]
            twins = {row["twin"]: at for at, row in enumerate(rows) if row["twin"] is not None}
            self._deciders.append((Decider(build_scene(image, rows, facts, side)), twins))

    def grade(self, query: Query, target: tuple[int, ...]) -> int:
        """Return for how many shifts a query keeps its answer ``target``: 0 to :data:`ROBUST`.

        Return :data:`ANSWER_CHANGES` if it has another answer for one shift.
        """
        grade = self._least
        for decider, twins in self._deciders:
            if not decider.supports(query) or not (answer := decider.answer(query)).decidable:
                continue
            if set(answer.selected) != {twins.get(region) for region in target}:
                return ANSWER_CHANGES
            grade += 1
        return grade
