"""Search for decidable queries about an image, which have exactly one answer. A target is a set of regions, and a form
is a query in logical form that selects the target."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from cxr.medground.logic.atoms import NO, YES, atom_family, evaluate_relation
from cxr.medground.logic.decide import AXES, RELATIONS, Decider, Query, Reference, answer_from_values

KINDS = {"single": 0.6, "subset": 0.25, "all": 0.15}
"""{kind of answer: fraction of queries}. single: one region; subset: several; all: all of a class or of the image."""
MAX_ATOMS = 4  # most atoms of a form; atoms that only lengthen its text are added later
BUDGET = 20_000  # most combinations of atoms that are tried per image
REFERENCES = 5  # most references tried per image
FORMS = 40  # most forms kept per target
SEARCHED = ("class", "size", "shape", "appearance", "position", "zone")  # families of atoms in the order of the search
PLACES = (
    ("left",), ("right",), ("upper",), ("lower",), ("upper", "left"), ("upper", "right"), ("lower", "left"),
    ("lower", "right"), ("middle",), ("border",),
)  # fmt: skip
Target = tuple[int, ...]


def find_references(decider: Decider, draw: random.Random) -> list[tuple[Reference, int]]:
    """Return up to :data:`REFERENCES` random pairs (reference, region). A reference describes one region by its class
    and at most one ordinal, such as "the largest nucleus"."""
    words = [atom for atom in decider.atoms if atom.startswith("class:") and _may_name(atom, decider)]
    reference_by_region: dict[int, Reference] = {}
    options = [Reference((word,), name) for word in words for name in ("", *AXES)]
    draw.shuffle(options)
    for reference in sorted(options, key=lambda reference: bool(reference.ordinal)):
        if (region := decider.resolve_reference(reference)) is not None:
            reference_by_region.setdefault(region, reference)
    return [(reference, region) for region, reference in list(reference_by_region.items())[:REFERENCES]]


def _may_name(atom: str, decider: Decider) -> bool:
    """Return whether queries may ask for every class that the word of an atom "class:word" includes."""
    word = atom.partition(":")[2]
    return all(noun.ask for noun in decider.scene.classes.values() if noun.includes(word))


class FormSearch:
    """Search for an image's logical forms. It adds atoms such as "size:small" to a form, and drops the form as soon as
    no region fits. ``by_target``: {target: its forms}. ``spent``: whether :data:`BUDGET` ended the search."""

    def __init__(self, decider: Decider, families: Sequence[str], draw: random.Random, max_atoms: int = MAX_ATOMS):
        self.decider, self.max_atoms, self.families, self.draw = decider, max_atoms, families, draw
        self.by_target: dict[Target, list[Query]] = {}
        self.spent, self._nodes = False, 0
        self.references = find_references(decider, draw) if {"relation", "ordinal"} & set(families) else []
        self.sided = decider.scene.radiological is not None
        self._ordered: dict[tuple, list[tuple[str, int, int]]] = {}
        self._seen: Counter[Target] = Counter()
        self._relations: dict[tuple[str, int], np.ndarray] = {}

    def run(self) -> "FormSearch":
        """Find the forms of every target, and return this object."""
        start = np.full(len(self.decider.scene), YES, np.uint8)
        for query, values in self._grown(0, Query(()), start):
            answer = answer_from_values(values)
            if answer.decidable:
                self._add(query, answer.selected)
                self._order(query, answer.selected)
            if "relation" in self.families and len(query.atoms) < min(self.max_atoms, 3):
                self._relate(query, values)
        return self

    def _grown(self, depth: int, query: Query, values: np.ndarray) -> Iterator[tuple[Query, np.ndarray]]:
        if self._nodes >= BUDGET:
            self.spent = True
            return
        self._nodes += 1
        if depth == len(SEARCHED):
            yield query, values
            return
        for option in self._options(SEARCHED[depth]):
            if grown := self._with(option, query, values):
                yield from self._grown(depth + 1, *grown)

    def _options(self, name: str) -> list[tuple[str, ...] | None]:
        if name not in self.families and name != "class":
            return [None]
        options: list = [(atom,) for atom in self.decider.atoms if atom_family(atom) == name]
        if name == "position":
            options = [tuple(f"position:{half}" for half in place) for place in PLACES]
        elif name == "class":
            options = [option for option in options if _may_name(option[0], self.decider)]
        self.draw.shuffle(options)
        return [*options, None] if name == "class" else [None, *options]

    def _with(self, option: tuple[str, ...] | None, query: Query, values: np.ndarray):
        if option is None:
            return query, values
        if len(query.atoms) + len(option) > self.max_atoms:
            return None
        narrowed = np.minimum(values, self.decider.conjunction(option))
        # an atom that excludes no region may only lengthen the query's text later
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
                grown = replace(query, relation=kind, reference=reference)
                is_new = answer.decidable and not (narrowed == values).all()
                if is_new and not (self.sided and mixes_sides(grown)):
                    self._add(grown, answer.selected)
            other_values = values.copy()
            other_values[region] = NO
            answer = answer_from_values(other_values)
            if answer.decidable and self.decider.is_closed(query.atoms):
                nearest = self.decider.nearest_region(answer.selected, region)
                if nearest is not None:
                    self._add(replace(query, reference=reference, ordinal="nearest"), (nearest,))

    def _order(self, query: Query, selected: Target) -> None:
        if len(selected) < 2 or "ordinal" not in self.families or not self.decider.is_closed(query.atoms):
            return
        if selected not in self._ordered:
            self._ordered[selected] = [
                (name, nth, region)
                for name, (attribute, _) in AXES.items()
                for nth in ((1,) if attribute == "area" else (1, 2, 3))
                if (region := self.decider.ordinal_region(selected, name, nth)) is not None
            ]
        is_sized = any(atom.startswith("size:") for atom in query.atoms)
        for name, nth, region in self._ordered[selected]:
            grown = replace(query, ordinal=name, nth=nth)
            if not (is_sized and name in ("largest", "smallest")) and not (self.sided and mixes_sides(grown)):
                self._add(grown, (region,))

    def _add(self, query: Query, target: Target) -> None:
        scene = self.decider.scene
        if not all(scene.candidate[region] and scene.classes[scene.label[region]].ask for region in target):
            return
        plain = all(atom.startswith("class:") for atom in query.atoms) and not query.reference
        if plain and not query.ordinal and not self.decider.is_closed(query.atoms):
            return
        forms = self.by_target.setdefault(target, [])
        self._seen[target] += 1
        if len(forms) < FORMS:
            forms.append(query)
        elif (place := self.draw.randrange(self._seen[target])) < FORMS:
            forms[place] = query


def mixes_sides(query: Query) -> bool:
    """Return whether a query mixes the patient's sides with left or right of the image, which confuses readers."""
    terms = {*query.atoms, query.relation, query.ordinal, query.reference.ordinal if query.reference else ""}
    return any(atom_family(atom) == "zone" for atom in query.atoms) and not terms.isdisjoint(IMAGE_SIDES)


IMAGE_SIDES = ("position:left", "position:right", "left_of", "right_of", "leftmost", "rightmost")
"""Atoms, relations and ordinals about left or right of the image."""
MIRRORED = {
    "position:left": "position:right", "position:right": "position:left", "side:left": "side:right",
    "side:right": "side:left", "leftmost": "rightmost", "rightmost": "leftmost", "left_of": "right_of",
    "right_of": "left_of",
}  # fmt: skip


def mirror_query(query: Query) -> Query:
    """Return a query with left and right exchanged, except in names of zones."""

    def mirrored(term: str) -> str:
        return MIRRORED.get(term, term)

    reference = query.reference and replace(query.reference, ordinal=mirrored(query.reference.ordinal))
    terms = {"relation": mirrored(query.relation), "ordinal": mirrored(query.ordinal)}
    return replace(query, atoms=tuple(map(mirrored, query.atoms)), reference=reference, **terms)


def target_kind(target: Target, decider: Decider) -> str:
    """Return the kind of a target: ``single``, ``subset``, or ``all`` regions of its classes or of the image. Return ""
    if it has all possible answers, but "all" would also mean regions that may not be answers or were dropped."""
    scene = decider.scene
    if len(target) == 1:
        return "single"
    labels = {scene.label[region] for region in target}
    for group in ({at for at in range(len(scene)) if scene.label[at] in labels}, set(range(len(scene)))):
        candidates = {at for at in group if scene.candidate[at]}
        if set(target) == candidates:
            is_open = any(scene.label[at] in scene.open_classes for at in group)
            return "" if candidates != group or is_open else "all"
    return "subset"
