"""Search for the decidable queries about an image: targets, and the logical forms that select each."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from cxr.medground.logic.atoms import NO, OPPOSITE_SIDE, YES, atom_family, evaluate_relation
from cxr.medground.logic.decide import (
    AXES,
    RELATIONS,
    Decider,
    Query,
    Reference,
    answer_from_values,
    nearest_region,
    ordinal_region,
)

KINDS = {"single": 0.6, "subset": 0.25, "all": 0.15}
"""Fraction of queries whose answer is one region, several, or all regions of a class or of the image."""
MAX_ATOMS = 4
"""Most attributes of a query, before those that lengthen it."""
BUDGET = 20_000
"""Combinations of attributes that are tried in an image."""
REFERENCES = 5
"""Most references tried per image."""
FORMS = 40
"""Most forms kept per target."""
SEARCHED = ("class", "size", "shape", "appearance", "position", "zone")
"""Families of atoms in the order of the search."""
PLACES = (
    ("left",), ("right",), ("upper",), ("lower",), ("upper", "left"), ("upper", "right"), ("lower", "left"),
    ("lower", "right"), ("middle",), ("border",),
)  # fmt: skip
Target = tuple[int, ...]


@dataclass
class Forms:
    """``of``: {target: forms}; ``spent``: whether the budget ended the search."""

    of: dict[Target, list[Query]] = field(default_factory=dict)
    spent: bool = False


def find_references(decider: Decider, draw: random.Random) -> list[tuple[Reference, int]]:
    """Return unambiguous references with their regions, by class and possibly an ordinal; at most REFERENCES."""
    words = [atom for atom in decider.atoms if atom.startswith("class:") and _may_name(atom, decider)]
    reference_by_region: dict[int, Reference] = {}
    options = [Reference((word,), name) for word in words for name in ("", *AXES)]
    draw.shuffle(options)
    for reference in sorted(options, key=lambda reference: bool(reference.ordinal)):
        region = decider.resolve_reference(reference)
        if region is not None and region not in reference_by_region:
            reference_by_region[region] = reference
    return [(reference, region) for region, reference in list(reference_by_region.items())[:REFERENCES]]


def _may_name(atom: str, decider: Decider) -> bool:
    """Return whether queries may ask for every class that a class word includes."""
    word = atom.partition(":")[2]
    return all(noun.ask for noun in decider.scene.classes.values() if noun.includes(word))


class FormSearch:
    """Enumerate conjunctions family by family; a branch ends as soon as it selects nothing."""

    def __init__(self, decider: Decider, families: tuple[str, ...], draw: random.Random, max_atoms: int = MAX_ATOMS):
        self.decider, self.max_atoms, self.families = decider, max_atoms, families
        self.draw, self.nodes = draw, 0
        self.references = find_references(decider, draw) if {"relation", "ordinal"} & set(families) else []
        self.sided = decider.scene.radiological is not None
        self.found = Forms()
        self._ordered: dict[tuple, list[tuple[str, int, int]]] = {}
        self._seen: dict[Target, int] = {}
        self._relations: dict[tuple[str, int], np.ndarray] = {}

    def run(self) -> Forms:
        """Return the forms of every target."""
        start = np.full(len(self.decider.scene), YES, np.uint8)
        for query, values in self._grown(0, Query(()), start):
            answer = answer_from_values(values)
            if answer.decidable:
                self._add(query, answer.selected)
                self._order(query, answer.selected)
            if "relation" in self.families and len(query.atoms) < min(self.max_atoms, 3):
                self._relate(query, values)
        return self.found

    def _grown(self, depth: int, query: Query, values: np.ndarray) -> Iterator[tuple[Query, np.ndarray]]:
        if self.nodes >= BUDGET:
            self.found.spent = True
            return
        self.nodes += 1
        if depth == len(SEARCHED):
            yield query, values
            return
        for option in self._options(depth, query):
            grown = self._with(option, query, values)
            if grown is not None:
                yield from self._grown(depth + 1, *grown)

    def _options(self, depth: int, query: Query) -> list:
        name = SEARCHED[depth]
        if name not in self.families and name != "class":
            return [None]
        if name == "position":
            options: list = [tuple(f"position:{half}" for half in place) for place in PLACES]
        else:
            options = [(atom,) for atom in self.decider.atoms if atom_family(atom) == name]
        if name == "class":
            options = [option for option in options if _may_name(option[0], self.decider)]
            self.draw.shuffle(options)
            return [*options, None]
        self.draw.shuffle(options)
        return [None, *options]

    def _with(self, option: tuple[str, ...] | None, query: Query, values: np.ndarray):
        if option is None:
            return query, values
        if len(query.atoms) + len(option) > self.max_atoms:
            return None
        narrowed = np.minimum(values, self.decider.conjunction(option))
        # an atom that excludes no region adds nothing here; it may lengthen the query later
        if not (narrowed == YES).any() or (narrowed == values).all():
            return None
        grown = replace(query, atoms=(*query.atoms, *option))
        return None if self.sided and mixes_sides(grown) else (grown, narrowed)

    def _relate(self, query: Query, values: np.ndarray) -> None:
        scene, numbers = self.decider.scene, self.decider.numbers
        for reference, region in self.references:
            for kind in RELATIONS:
                if (kind, region) not in self._relations:
                    self._relations[kind, region] = evaluate_relation(kind, region, scene, numbers)
                narrowed = np.minimum(values, self._relations[kind, region])
                answer = answer_from_values(narrowed)
                if not answer.decidable or (narrowed == values).all():
                    continue
                grown = replace(query, relation=kind, reference=reference)
                if not (self.sided and mixes_sides(grown)):
                    self._add(grown, answer.selected)
            other_values = values.copy()
            other_values[region] = NO
            answer = answer_from_values(other_values)
            if answer.decidable and self.decider.is_closed(query.atoms):
                first = nearest_region(scene, answer.selected, region, numbers)
                if first is not None:
                    self._add(replace(query, reference=reference, ordinal="nearest"), (first,))

    def _order(self, query: Query, selected: Target) -> None:
        if len(selected) < 2 or "ordinal" not in self.families or not self.decider.is_closed(query.atoms):
            return
        if selected not in self._ordered:
            scene, numbers = self.decider.scene, self.decider.numbers
            self._ordered[selected] = [
                (name, nth, first)
                for name, (attribute, _) in AXES.items()
                for nth in ((1,) if attribute == "area" else (1, 2, 3))
                if (first := ordinal_region(scene, selected, name, nth, numbers)) is not None
            ]
        sized = any(atom.startswith("size:") for atom in query.atoms)
        for name, nth, first in self._ordered[selected]:
            grown = replace(query, ordinal=name, nth=nth)
            if not (sized and name in ("largest", "smallest")) and not (self.sided and mixes_sides(grown)):
                self._add(grown, (first,))

    def _add(self, query: Query, target: Target) -> None:
        scene = self.decider.scene
        if not all(scene.candidate[region] and scene.classes[scene.label[region]].ask for region in target):
            return
        plain = all(atom.startswith("class:") for atom in query.atoms) and not query.reference
        if plain and not query.ordinal and not self.decider.is_closed(query.atoms):
            return
        forms = self.found.of.setdefault(target, [])
        self._seen[target] = self._seen.get(target, 0) + 1
        if len(forms) < FORMS:
            forms.append(query)
        elif (place := self.draw.randrange(self._seen[target])) < FORMS:
            forms[place] = query


def mixes_sides(query: Query) -> bool:
    """Return whether a query mixes the patient's sides with left or right of the image, which confuses readers."""
    sides = any(atom_family(atom) == "zone" for atom in query.atoms)
    image = any(atom in ("position:left", "position:right") for atom in query.atoms)
    image |= query.relation in ("left_of", "right_of") or query.ordinal in ("leftmost", "rightmost")
    if query.reference:
        image |= query.reference.ordinal in ("leftmost", "rightmost")
    return sides and image


MIRRORED = {
    **{f"{kind}:{side}": f"{kind}:{other_side}"
       for kind in ("position", "side") for side, other_side in OPPOSITE_SIDE.items()},
    "leftmost": "rightmost", "rightmost": "leftmost", "left_of": "right_of", "right_of": "left_of",
}  # fmt: skip


def mirror_query(query: Query) -> Query:
    """Return a query with left and right exchanged, except in names of zones."""
    reference = query.reference
    if reference:
        reference = replace(reference, ordinal=MIRRORED.get(reference.ordinal, reference.ordinal))
    return replace(
        query,
        atoms=tuple(MIRRORED.get(atom, atom) for atom in query.atoms),
        relation=MIRRORED.get(query.relation, query.relation),
        ordinal=MIRRORED.get(query.ordinal, query.ordinal),
        reference=reference,
    )


def target_kind(target: Target, decider: Decider) -> str:
    """Return single, subset or all; "" for all regions of a class that is open or has distractors."""
    scene = decider.scene
    if len(target) == 1:
        return "single"
    labels = {scene.label[region] for region in target}
    for group in ({at for at in range(len(scene)) if scene.label[at] in labels}, set(range(len(scene)))):
        free = {at for at in group if scene.candidate[at]}
        if set(target) == free:
            opened = any(scene.label[at] in scene.open_classes for at in group)
            return "" if free != group or opened else "all"
    return "subset"
