"""The lexicon in ``resources/lexicon/*.yaml``: names of findings, locations, and words that deny or hedge ("cues").

The code itself contains only function words ("and", "or", "the").
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from typing import TYPE_CHECKING

import spacy
from negspacy.negation import Negex
from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc

from cxr.base.paths import RESOURCES
from cxr.base.resources import load_resource
from cxr.language.reports.rules.tokens import Shorthand, Token, Tokenizer

_SLOT = re.compile(r"\{(\w+)\}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def fill_slots(tree, slots: dict[str, list[str]]):
    """Return a YAML tree in which each phrase with a "{slot}" is replaced by one phrase for each value of the slot. A
    value may contain other slots. Raises KeyError for an undefined slot."""
    if isinstance(tree, dict):
        return {key: fill_slots(value, slots) for key, value in tree.items()}
    if isinstance(tree, list):
        return [
            form
            for item in tree
            for form in (_forms(item, slots) if isinstance(item, str) else [fill_slots(item, slots)])
        ]
    return tree


def _forms(phrase: str, slots: dict[str, list[str]]) -> list[str]:
    names = _SLOT.findall(phrase)
    if not names:
        return [phrase]
    choices = [[form for word in slots[name] for form in _forms(str(word), slots)] for name in names]
    pattern = _SLOT.sub("{}", phrase)
    return list(dict.fromkeys(" ".join(pattern.format(*words).split()) for words in product(*choices)))


def plurals(phrase: str) -> list[str]:
    """Return [plural of the phrase], or [] if the last word has no plural, such as "enlarged"."""
    if phrase.endswith(("s", "ed", "ing", "ic", "ous")) and not phrase.endswith("marking"):
        return []
    return [phrase[:-1] + "ies"] if phrase.endswith("y") and phrase[-2] not in "aeiou" else [phrase + "s"]


def misspellings(words: list[str], known_words: set[str]) -> dict[str, str]:
    """Return {misspelt word: right word} for all misspellings of ``words`` with one slip. A slip is a missing, added or
    wrong letter, or two swapped letters. Misspellings that are one of ``known_words``, or that could mean two of
    ``words``, are left out."""
    word_by_slip: dict[str, str | None] = {}
    for word in words:
        for slip in _slips(word) - known_words - set(words):
            first_word = word_by_slip.get(slip, word)
            is_unambiguous = first_word in (word, word.removesuffix("s"))  # a word has priority over its plural
            word_by_slip[slip] = first_word if is_unambiguous else None
    return {slip: word for slip, word in word_by_slip.items() if word is not None}


def _slips(word: str) -> set[str]:
    parts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    left_out = {a + b[1:] for a, b in parts if b}
    swapped = {a + b[1] + b[0] + b[2:] for a, b in parts if len(b) > 1}
    wrong = {a + letter + b[1:] for a, b in parts if b for letter in _LETTERS}
    added = {a + letter + b for a, b in parts for letter in _LETTERS}
    return left_out | swapped | wrong | added


FILES = ("entities", "composites", "scope", "links", "locations", "slots", "spelling", "shorthand")
RESOURCE_FILES = ("lexicon",)
CUE_SETS = ("negation", "no_new", "strong", "suspicion", "weak", "elsewhere")
"""Kinds of cues (words that deny or hedge a finding). A negspacy component for each kind, of the same name, finds the
findings to which its cues apply."""
TAGS = (
    "refuted", "denied_that", "changes", "unfinished", "likewise", "exceptions", "persists", "on_prior", "states",
    "appeared", "beyond", "not_all",
)  # fmt: skip
"""Keys of ``scope.yaml`` that are also the tags (:class:`Lexicon`) of the phrases under them."""
SETS = {
    "scope": (
        "articles", "one_sizes", "refuted_inside", "refuted_before", "one_not_before", "elided_states", "asks",
        "affirming_after_with_only",
    ),
    "links": ("not_linked", "joint"),
    "composites": ("composite_breaks", "composite_joins", "composite_steady"),
    "locations": (
        "within", "place_led", "carried", "portions", "inherits", "inherit_words", "local", "pointers", "healthy",
        "without", "views", "behind_both", "choices", "causes", "possible_diseases", "bearers", "gap_breaks", "shares",
        "beside", "inside", "before_place",
    ),
}  # fmt: skip
"""Keys, by file, whose lists become sets of words. Each set is an attribute of :class:`Lexicon`."""


@dataclass(frozen=True)
class Entity:
    """The name of a finding and its properties: a row of ``entities.yaml``, which explains the fields."""

    name: str
    lesion: str | None = None
    related: str | None = None
    leaves_open: tuple[str, ...] = ()
    explained: bool = False
    predicted: bool = False
    category: str | None = None
    hedge: str = "definite"


@dataclass(frozen=True)
class Composite:
    """A finding that a subject and a state name together ("heart ... enlarged"), at most ``gap`` words apart. If two
    overlap, the one with the lower ``rank`` counts."""

    entity: Entity
    gap: int
    rank: int


class Lexicon:
    """All words of the rules engine, ready for matching.

    Each phrase has a value and a tag, the kind of phrase: entity (finding), cancel (look-alike of a finding), device,
    subject and state (parts of a :class:`Composite`), side, level ("base"), fused (side and level, "RUL"), half
    ("upper" before a later noun), place (location outside the lungs), link ("suggesting", before a disease), reversed
    ("explains", after a disease), or "deny" and more in ``_add_cues``. The sets of words (``SETS``) are attributes.
    """

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> frozenset[str]: ...

    def __init__(self) -> None:
        data = {name: load_resource(f"lexicon/{name}.yaml") for name in FILES}
        data = fill_slots(data, data.pop("slots"))
        self.nlp = spacy.blank("en")
        self.nlp.tokenizer = Tokenizer(self.nlp.vocab)
        rows = data["entities"]["entities"] + data["composites"]["composite_entities"]
        self.entities = {row["name"]: _entity(row) for row in rows}
        self.locations, self.links, self.scope = data["locations"], data["links"], data["scope"]
        self._matcher = PhraseMatcher(self.nlp.vocab, attr="LOWER")
        self._values: dict[int, list[tuple[str, object]]] = {}
        self.phrases: dict[str, list[tuple[str, object]]] = {}
        self._add_entities(data["entities"], data["composites"]["composites"])
        self._add_locations(data["locations"])
        self._add_cues(data["scope"], data["links"])
        known_words = {*data["spelling"]["keep"], *(word for form in self.phrases for word in form.split())}
        spelling = data["spelling"]["words"]
        self.spelling = misspellings(spelling, known_words)
        self.shorthand = Shorthand(**data["shorthand"], slips=self.spelling, words=spelling, known_words=known_words)
        self._tokens = lru_cache(maxsize=4096)(self.shorthand.tokens)
        for phrase, values in self.phrases.items():
            key = self.nlp.vocab.strings.add("cxr:" + phrase)
            self._values[key] = values
            self._matcher.add("cxr:" + phrase, [self.nlp.make_doc(phrase)])
        self.cues = {name: self._negex(name) for name in CUE_SETS}
        self._cued = PhraseMatcher(self.nlp.vocab, attr="LOWER")
        for name in CUE_SETS:
            cues = self._phrases_of(name)
            self._cued.add(name, [self.nlp.make_doc(cue) for cue in cues["before"] + cues["after"]])
        for section, names in SETS.items():
            for name in names:
                setattr(self, name, frozenset(data[section][name]))
        negation, scope = self.scope["negation"], self.scope
        self.behind = {key: frozenset(words) for key, words in scope["behind"].items()}
        self.told_of = {key: frozenset(words) for key, words in scope["told_of"].items()}
        self.adjacent, self.not_adjacent = frozenset(negation["adjacent"]), frozenset(negation["not_adjacent"])
        self.touching = tuple(" " + phrase for phrase in negation["touching"])
        self.affirming_after_denial = self.articles.union(map(str, scope["affirming_after_denial"]))
        self.quantities = frozenset(map(str, scope["quantities"] + scope["affirming"]))
        self.unassessed, self.resumed, self.several, self.anaphora = (
            frozenset(tuple(str(phrase).split()) for phrase in phrases)
            for phrases in (scope["unassessed"], scope["resumed"], scope["several"], self.links["anaphora"])
        )
        self.link_breaks, self.link_adjectives = (frozenset(self.links[name]) for name in ("breaks", "adjectives"))
        self.stand_ins, self.answers = scope["stand_ins"], scope["answers"]

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a sentence, in which shorthand and misspelt words are replaced by the intended words."""
        return self._tokens(text)

    def cued(self, doc: Doc) -> list[str]:
        """Return the kinds of denying or hedging words (``CUE_SETS``) that occur in ``doc``."""
        cued_names = {self.nlp.vocab.strings[key] for key, _, _ in self._cued(doc)}
        return [name for name in CUE_SETS if name in cued_names]

    def match(self, doc: Doc) -> list[tuple[str, object, int, int]]:
        """Return (tag, value, start, end) of each phrase of the lexicon in ``doc``, sorted by its first token."""
        hits = [(tag, v, s, e) for key, s, e in self._matcher(doc) for tag, v in self._values[key]]
        hits.sort(key=lambda hit: (hit[2], -hit[3], hit[0], str(hit[1])))
        return hits

    def _put(self, tag: str, value: object, phrases: list[str], plural: bool = False) -> None:
        for phrase in phrases:
            words = " ".join(word.text for word in self.nlp.make_doc(str(phrase).lower()))
            for form in {words, *(plurals(words) if plural else ())}:
                self.phrases.setdefault(form, []).append((tag, value))

    def _add_entities(self, data: dict, composites: list[dict]) -> None:
        for row in data["entities"]:
            self._put("entity", self.entities[row["name"]], row["words"], plural=True)
        for rank, row in enumerate(composites):
            composite = Composite(self.entities[row["name"]], row["gap"], rank)
            self._put("subject", composite, row["subjects"], plural=True)
            self._put("state", composite, row["states"])
        self._put("device", None, data["not_findings"]["devices"], plural=True)
        for phrases in data["not_findings"].values():
            self._put("cancel", None, phrases, plural=True)
        self.lung_words = tuple(data["lung_words"])

    def _add_locations(self, data: dict) -> None:
        for side, phrases in data["sides"].items():
            self._put("side", side, phrases)
        for level, row in data["levels"].items():
            self._put("level", level, row["words"])
        for half in data["halves"]:
            self._put("half", half, [half])
        for phrase, (side, level) in data["fused"].items():
            self._put("fused", (side, level), [phrase])
        for category, row in data["elsewhere"].items():
            self._put("place", category, row["words"] if isinstance(row, dict) else row, plural=True)

    def _add_cues(self, scope: dict, links: dict) -> None:
        for tag, phrases_by_grade in (("link", links["links"]), ("reversed", links["reversed"])):
            for grade, phrases in phrases_by_grade.items():
                self._put(tag, grade, phrases)
        cues = [p for row in scope.values() if isinstance(row, dict) for p in row.get("before", ())]
        cues += [p for phrases in links["links"].values() for p in phrases]
        negation = scope["negation"]
        phrases_by_tag = {
            "bound": links["bound"],
            "alternative": links["alternatives"],
            "end": scope["ends"],
            "not_end": scope["not_ends"],
            "affirming": scope["affirming"],
            "verb": scope["verbs"],
            "hedged": scope["weak"]["after"],
            "deny": negation["before"],
            "cue_with": sorted({str(p) for p in cues if str(p).endswith(" with")}),
            "deny_not": negation["not"],
            "aside": scope["elsewhere"]["before"],
            "operation": scope["operations"],
            "carries": scope["carries_hedge"],
            "bears": scope["bears_hedge"],
            "setting": scope["behind"]["setting"],
            "deny_after": negation["after"],
            **{tag: scope[tag] for tag in TAGS},
            "here": self.locations["here"],
        }
        for tag, phrases in phrases_by_tag.items():
            self._put(tag, None, phrases)

    def _negex(self, name: str) -> Negex:
        """Return a negspacy component for one of ``CUE_SETS``. It treats the clauses of this engine as sentences."""
        phrases = self._phrases_of(name)
        terms = {
            "pseudo_negations": phrases["not"],
            "preceding_negations": phrases["before"],
            "following_negations": phrases["after"],
            "termination": [],
        }
        return Negex(self.nlp, name, terms, extension_name=name, span_keys=["mentions"])

    def _phrases_of(self, name: str) -> dict[str, list[str]]:
        """Return the phrases of one of ``CUE_SETS`` as {"before": phrases that act on a finding after them, "after":
        phrases that act on a finding before them, "not": phrases that only look like these}."""
        row = self.scope[name]
        if isinstance(row, list):
            row = {"before": row, "after": [], "not": []}
        return {key: [str(phrase).lower() for phrase in row[key]] for key in ("before", "after", "not")}


def _entity(row: dict) -> Entity:
    values = {key: value for key, value in row.items() if key != "words"}
    return Entity(**values | {"leaves_open": tuple(row.get("leaves_open", ()))})


@cache
def load_lexicon() -> Lexicon:
    """Read the lexicon, once per process."""
    return Lexicon()


def digest_lexicon() -> str:
    """Return a digest of the lexicon's files, in 16 hexadecimal digits."""
    contents = [(RESOURCES / RESOURCE_FILES[0] / f"{name}.yaml").read_bytes() for name in FILES]
    return hashlib.blake2b(b"".join(contents), digest_size=8).hexdigest()
