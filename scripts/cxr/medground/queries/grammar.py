"""Wording of queries: sentences that state exactly the atoms, relation, ordinal and number of a logical form."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cxr.base.resources import load_resource
from cxr.medground.logic.atoms import atom_family
from cxr.medground.logic.decide import Query
from cxr.medground.logic.scene import Scene, zone_phrases
from cxr.medground.logic.text import NUMBERS
from cxr.medground.queries.forms import IMAGE_SIDES

RESOURCE_FILES = ("medground/grammar.yaml", "medground/logic.yaml")
MIN_WORDS = 4  # fewest words of a query
FRAMES = (("imperatives", 0.5), ("questions", 0.26), ("phrases", 0.24))
BARE = 0.5  # probability that a position omits "of the image", in images without sides of the patient
FRONTED = (0.15, 0.4)
"""Probability that a sentence begins with a position: usually, and if an ordinal counts only at this position."""
AMONG = 0.2  # probability that a query with an ordinal names the group first although it need not
COMPARING = ("higher", "lower than", "nearest", "closest", "contained")
"""Beginnings of relations that follow "is", as in "is higher than", in place of "lies"."""
NUM_SYNONYMS = 3  # only the first synonyms of a size or shape are written; further ones are understood
AGREEMENT = {
    "is": ("is", "are"), "box": ("box", "boxes"), "a_box": ("a box", "boxes"), "position": ("position", "positions"),
    "extent": ("extent", "extents"), "Position": ("Position", "Positions"), "Extent": ("Extent", "Extents"),
}  # fmt: skip
"""{placeholder in a sentence pattern: (word for one region, word for several)}."""


@dataclass
class QueryWriter:
    """Writer of queries about one scene. ``draw``: random generator that chooses synonyms and sentence patterns."""

    scene: Scene
    draw: random.Random

    def __post_init__(self) -> None:
        self.grammar, self.lexicon = map(load_resource, RESOURCE_FILES)

    def say(self, query: Query, count: int) -> str:
        """Return a sentence of at least four words for a query whose answer has ``count`` regions."""
        while len((text := self._draw_sentence(query, count)).split()) < MIN_WORDS:
            continue
        return text

    def _draw_sentence(self, query: Query, count: int) -> str:
        many, places = count > 1, self._places(query)
        # "on the image" is needed if unqualified sides are the patient's, and no position has it
        names_image = any(place.endswith(tuple(self.grammar["of"])) for place in places)
        orders = {query.relation, query.ordinal, query.reference.ordinal if query.reference else ""}
        is_sided = self.scene.radiological is not None and not orders.isdisjoint(IMAGE_SIDES)
        image = is_sided and not names_image
        # the ordinal counts within a position, as in "in the upper half, the second from the left"
        within = (query.nth > 1 or query.ordinal == "nearest") and bool(places or query.relation)
        # the ordinal would precede a relative size: "the rightmost relatively large cell"
        relative = query.ordinal not in ("", "nearest") and bool({"size:larger", "size:smaller"} & {*query.atoms})
        clear = not query.relation and not relative and not (within and len(places) > 1)
        if places and clear and not places[0].startswith("touching") and self.draw.random() < FRONTED[within]:
            place, np = places[0], self.phrase(query, many, places[1:], image=image)
            return self._filled(self.draw.choice(self.grammar["fronted"]), np, many, place)
        if query.ordinal and (within or relative or self.draw.random() < AMONG):
            return self._among(query, places, image=image)
        name = self.draw.choices([frame for frame, _ in FRAMES], [weight for _, weight in FRAMES])[0]
        return self._filled(self.draw.choice(self.grammar[name]), self.phrase(query, many, places, image=image), many)

    def _filled(self, frame: str, phrase: str, many: bool, place: str = "") -> str:
        words = {name: forms[many] for name, forms in AGREEMENT.items()}
        np, place = (text[:1].upper() + text[1:] for text in (phrase, place))
        return frame.format(np=phrase, Np=np, Place=place, **words)

    def _among(self, query: Query, places: Sequence[str], *, image: bool) -> str:
        """Return a sentence such as "among the cells, the largest one", which names the group before its member."""
        group = replace(query, ordinal="", nth=1, number=0)
        if query.ordinal == "nearest":
            which = f"one {self._relation(query, image=image)}"
            group, image = replace(group, reference=None), False
        elif query.nth > 1:
            which = f"{NTH[query.nth]} one {self.grammar['nth'][query.ordinal]}"
        else:
            which = f"{self.draw.choice(self.lexicon['ordinals'][query.ordinal])} one"
        group_phrase = self.phrase(group, True, places, image=image)
        return self.draw.choice(self.grammar["among"]).format(group=group_phrase, which=which)

    def phrase(self, query: Query, many: bool, places: Sequence[str], *, image: bool) -> str:
        """Return a noun phrase with positions ``places``, plural if ``many``, with "on the image" if ``image``."""
        adjectives, clause = self._adjectives(query), ""
        if adjectives and not query.ordinal and self.draw.random() < 0.2:
            clause = self.draw.choice(self.grammar["predicate"]["many" if many else "one"])
        head = [*self._before(query, many), *([] if clause else adjectives), self._noun(query.atoms, many)]
        if query.ordinal and query.nth > 1:
            head.append(self.grammar["nth"][query.ordinal])
        if image and not query.reference:
            head.append(self.grammar["on_image"])
        parts = [*places, *([self._relation(query, image=image)] if query.reference else [])]
        tail = [clause, _join_phrases([*adjectives, *parts])] if clause else self._tail(parts, many)
        return " ".join([*head, *tail])

    def _tail(self, parts: Sequence[str], many: bool) -> list[str]:
        if not parts:
            return []
        plain = parts[0].startswith(("touching", *COMPARING))
        is_clause = self.draw.random() < 0.3
        opener = self.draw.choice(self.grammar["relative" if is_clause else "lies"]["many" if many else "one"])
        if plain:
            opener = opener.replace("lies", "is").replace("lie", "are") if is_clause else ""
        return [*filter(None, [opener]), _join_phrases(parts)]

    def _before(self, query: Query, many: bool) -> list[str]:
        words = ["the"]
        if query.number > 0:
            says_both = query.number == 2 and self.draw.random() < 0.3
            words = ["both"] if says_both else ["the", *NUMBERS[query.number - 1 : query.number]]
        elif many and query.number < 0:
            words = ["all", "the"] if self.draw.random() < 0.5 else ["all"]
        if query.ordinal and query.ordinal != "nearest":
            nth = NTH[query.nth] if query.nth > 1 else self.draw.choice(self.lexicon["ordinals"][query.ordinal])
            words.append(nth)
        return words

    def _adjectives(self, query: Query) -> list[str]:
        appearance_words = self.lexicon["appearance"].get(self.scene.domain, self.lexicon["appearance"]["other"])
        words = {atom: synonyms[:NUM_SYNONYMS] for atom, synonyms in self.lexicon["words"].items()}
        words |= {f"appearance:{value}": synonyms for value, synonyms in appearance_words.items()}
        families = ("size", "shape", "appearance")
        atoms = [atom for family in families for atom in query.atoms if atom_family(atom) == family]
        return [self.draw.choice(words[atom]) for atom in atoms]

    def _noun(self, atoms: Sequence[str], many: bool) -> str:
        words = [atom.partition(":")[2] for atom in atoms if atom.startswith("class:")]
        if not words:
            return self.draw.choice(list(self.lexicon["generic"].items()))[many]
        plurals = (({noun.one: noun.many} | dict(noun.parents)).get(words[0]) for noun in self.scene.classes.values())
        return next(filter(None, plurals)) if many else words[0]

    def _places(self, query: Query) -> list[str]:
        halves = [atom.partition(":")[2] for atom in query.atoms if atom.startswith("position:")]
        templates, phrases = self.grammar["places"], []
        of_phrase = self.draw.choice(self.grammar["of"])
        short = self.scene.radiological is None and self.draw.random() < BARE
        vertical = [half for half in halves if half in ("upper", "lower")][:1]
        across = [half for half in halves if half in ("left", "right")][:1]
        names = [" ".join([*vertical, *across]), *(half for half in halves if half in ("middle", "border"))]
        for name in filter(None, names):
            suffix = "" if short and name in self.grammar["bare"] else of_phrase
            phrases.append(self.draw.choice(templates[name]).format(of=suffix).rstrip())
        for atom in query.atoms:
            if atom.startswith("side:"):
                phrases.append(self.draw.choice(self.grammar["sides"][atom.partition(":")[2]]))
            elif atom.startswith("zone:"):
                zone = self.draw.choice(zone_phrases(atom.partition(":")[2]))
                phrases.append(self.draw.choice(self.grammar["zones"]).format(zone=zone))
        self.draw.shuffle(phrases)
        return phrases

    def _relation(self, query: Query, *, image: bool) -> str:
        reference, phrase = query.reference, self.draw.choice(self.grammar["relations"][query.relation or "nearest"])
        ordinals = self.lexicon["ordinals"].get(reference.ordinal)
        words = ["the", *([self.draw.choice(ordinals)] if ordinals else [])]
        words += [*self._adjectives(Query(reference.atoms)), self._noun(reference.atoms, False)]
        phrase = phrase.format(ref=" ".join(words))
        return f"{phrase} {self.grammar['on_image']}" if image else phrase


NTH = {2: "second", 3: "third"}


def _join_phrases(parts: Sequence[str]) -> str:
    """Return "a", "a and b" or "a, b and c"."""
    *first, last = parts
    return f"{', '.join(first)} and {last}" if first else last
