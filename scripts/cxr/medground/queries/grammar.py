"""The words of a query: a sentence that says its atoms, its relation, its ordinal and its number, and nothing else."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES
from cxr.medground.logic.atoms import family
from cxr.medground.logic.decide import Query, Reference
from cxr.medground.logic.scene import Scene
from cxr.medground.logic.table import zone_words

RESOURCE_FILES = ("medground/grammar.yaml", "medground/logic.yaml")
NUMBERS = ("", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
LEAST = 4
"""Fewest words of a query."""
FRAMES = (("imperatives", 0.5), ("questions", 0.26), ("phrases", 0.24))
BARE = 0.5
"""Chance that a place in an image without the patient's sides is told without "of the image"."""
VERBS = {"is": ("is", "are"), "lies": ("lies", "lie"), "does": ("does", "do")}


@cache
def _read(name: str) -> Mapping:
    return yaml.safe_load((Path(RESOURCES) / name).read_text(encoding="utf-8"))


@dataclass
class Speaker:
    """Words a query about one scene. ``draw``: every choice of a synonym or a frame."""

    scene: Scene
    draw: random.Random

    @property
    def grammar(self) -> Mapping:
        return _read(RESOURCE_FILES[0])

    @property
    def lexicon(self) -> Mapping:
        return _read(RESOURCE_FILES[1])

    def say(self, query: Query, count: int) -> str:
        """Return a sentence, of four words at least, of a query whose answer has ``count`` regions."""
        text = self._said(query, count)
        while len(text.split()) < LEAST:
            text = self._said(query, count)
        return text

    def _said(self, query: Query, count: int) -> str:
        many = count > 1
        if query.ordinal and query.ordinal != "nearest" and query.nth == 1 and self.draw.random() < 0.2:
            return self._among(query)
        places = self._places(query)
        if places and not query.reference and self.draw.random() < 0.15:
            first = places.pop(0)
            frame, place = self.draw.choice(self.grammar["fronted"]), first[0].upper() + first[1:]
            return self._filled(frame, self.phrase(query, many, places), many, place)
        name = self.draw.choices([one for one, _ in FRAMES], [weight for _, weight in FRAMES])[0]
        return self._filled(self.draw.choice(self.grammar[name]), self.phrase(query, many, places), many)

    def _filled(self, frame: str, phrase: str, many: bool, place: str = "") -> str:
        words = {name: forms[many] for name, forms in VERBS.items()}
        capital = phrase[0].upper() + phrase[1:]
        return frame.format(np=phrase, Np=capital, Place=place, **words)

    def _among(self, query: Query) -> str:
        """Return "among …, the largest one": the group in the plural, then the ordinal."""
        group = self.phrase(replace(query, ordinal="", nth=1, number=0), True, self._places(query))
        word = self.draw.choice(self.lexicon["ordinals"][query.ordinal])
        if self._turned(query):
            group = f"{group} {self.grammar['on_image']}"
        return self.draw.choice(self.grammar["among"]).format(group=group, ordinal=word)

    def _turned(self, query: Query) -> bool:
        """Return whether the image must be named, because bare left and right are the patient's."""
        return self.scene.radiological is not None and query.ordinal in ("leftmost", "rightmost")

    def phrase(self, query: Query, many: bool, places: Sequence[str]) -> str:
        """Return the noun phrase: article, number, ordinal, adjectives, noun, places, relation."""
        adjectives, places = self._adjectives(query), list(places)
        clause = ""
        if adjectives and not query.ordinal and self.draw.random() < 0.2:
            told = " and ".join(adjectives)
            clause = self.draw.choice(self.grammar["predicate"]["many" if many else "one"]).format(adjectives=told)
            adjectives = []
        head = [*self._before(query, many), *adjectives, self._noun(query.atoms, many)]
        tail = []
        if query.ordinal and query.nth > 1:
            tail.append(self.grammar["nth"][query.ordinal])
        if self._turned(query):
            tail.append(self.grammar["on_image"])
        last = self._relation(query)
        if clause:
            joined = [*places, *([last] if last else [])]
            return " ".join([*head, *tail, clause, *([self._joined(joined)] if joined else [])])
        return " ".join([*head, *tail, *self._tail(places, last, many)])

    @staticmethod
    def _joined(parts: Sequence[str]) -> str:
        return "and " + " and ".join(parts) if parts else ""

    def _tail(self, places: list[str], last: str, many: bool) -> list[str]:
        parts = [*places, *([last] if last else [])]
        if not parts:
            return []
        if self.draw.random() < 0.3:
            touching = parts[0].startswith("touching")
            clause = self.draw.choice(self.grammar["relative"]["many" if many else "one"])
            clause = clause.replace("lies", "is").replace("lie", "are") if touching or _comparing(parts[0]) else clause
            return [clause, " and ".join(parts)]
        opener = self.draw.choice(self.grammar["lies"]["many" if many else "one"])
        if parts[0].startswith("touching") or opener == "" or _comparing(parts[0]):
            bare = " of the " not in parts[0]  # "in the lower half right of" would read as one place
            return [" and ".join(parts)] if bare or self.draw.random() < 0.5 else parts
        return [opener, " and ".join(parts)] if len(parts) > 1 else [opener, *parts]

    def _before(self, query: Query, many: bool) -> list[str]:
        found = ["the"]
        if query.number > 0:
            both = query.number == 2 and self.draw.random() < 0.3
            found = ["both"] if both else ["the", NUMBERS[query.number]] if query.number < len(NUMBERS) else ["the"]
        elif many and query.number < 0:
            found = ["all", "the"] if self.draw.random() < 0.5 else ["all"]
        if query.ordinal and query.ordinal != "nearest":
            if query.nth > 1:
                found.append(NTH[query.nth])
            else:
                found.append(self.draw.choice(self.lexicon["ordinals"][query.ordinal]))
        return found

    def _adjectives(self, query: Query) -> list[str]:
        found = []
        own = self.lexicon["appearance"].get(self.scene.domain, self.lexicon["appearance"]["other"])
        for atom in sorted(query.atoms, key=lambda atom: ("size", "shape", "appearance").index(family(atom))
                           if family(atom) in ("size", "shape", "appearance") else 9):  # fmt: skip
            name = family(atom)
            if name in ("size", "shape"):
                found.append(self.draw.choice(self.lexicon["words"][atom][:4]))
            elif name == "appearance":
                found.append(self.draw.choice(own[atom.partition(":")[2]]))
        return found

    def _noun(self, atoms: Sequence[str], many: bool) -> str:
        words = [atom.partition(":")[2] for atom in atoms if atom.startswith("class:")]
        if not words:
            one, plural = self.draw.choice(list(self.lexicon["generic"].items()))
            return plural if many else one
        return self._plural(words[0]) if many else words[0]

    def _plural(self, word: str) -> str:
        for one in self.scene.classes.values():
            if word == one.one:
                return one.many
            if word in one.parents:
                return one.parents[word]
        raise KeyError(word)

    def _places(self, query: Query) -> list[str]:
        """Return the places of a query's atoms in words, in a drawn order."""
        halves = [atom.partition(":")[2] for atom in query.atoms if atom.startswith("position:")]
        own, found = self.grammar["places"], []
        of = self.draw.choice(self.grammar["of"])
        short = self.scene.radiological is None and self.draw.random() < BARE
        vertical = [half for half in halves if half in ("upper", "lower")]
        across = [half for half in halves if half in ("left", "right")]
        names = [" ".join((*vertical[:1], *across[:1]))] if vertical or across else []
        names += [half for half in halves if half in ("middle", "border")]
        for name in names:
            told = "" if short and name in self.grammar["bare"] else of
            found.append(self.draw.choice(own[name]).format(of=told).rstrip())
        for atom in query.atoms:
            if atom.startswith("side:"):
                found.append(self.draw.choice(self.grammar["sides"][atom.partition(":")[2]]))
            elif atom.startswith("zone:"):
                zone = self.draw.choice(zone_words(atom.partition(":")[2]))
                found.append(self.draw.choice(self.grammar["zones"]).format(zone=zone))
        self.draw.shuffle(found)
        return found

    def _relation(self, query: Query) -> str:
        if not query.reference:
            return ""
        told = self.draw.choice(self.grammar["relations"][query.relation or "nearest"])
        told = told.format(ref=self._reference(query.reference))
        sided = self.scene.radiological is not None
        sideways = query.relation in ("left_of", "right_of") or query.reference.ordinal in ("leftmost", "rightmost")
        return f"{told} {self.grammar['on_image']}" if sided and sideways else told

    def _reference(self, reference: Reference) -> str:
        words = ["the"]
        if reference.ordinal:
            words.append(self.draw.choice(self.lexicon["ordinals"][reference.ordinal]))
        inner = Query(reference.atoms)
        return " ".join([*words, *self._adjectives(inner), self._noun(reference.atoms, False)])


NTH = {2: "second", 3: "third"}


def _comparing(part: str) -> bool:
    return part.startswith(("higher", "lower than", "nearest", "closest", "contained"))
