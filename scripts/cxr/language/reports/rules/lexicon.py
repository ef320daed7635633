"""Loading the lexicon in ``resources/lexicon/*.yaml`` into matchers.

Findings, cues and locations are data; the code contains only function words ("and", "or", "the").
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path

import spacy
import yaml
from negspacy.negation import Negex
from spacy.matcher import PhraseMatcher
from spacy.tokens import Doc

from cxr.language.reports.rules.tokens import Shorthand, Token, Tokenizer

_SLOT = re.compile(r"\{(\w+)\}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def fill_slots(tree, slots: dict[str, list[str]]):
    """Return a YAML tree in which each "{slot}" phrase of a list is replaced by the phrases it stands for.

    Slots may contain slots. Raises KeyError for an undefined slot.
    """
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
    """Return the plural of a phrase's last word; none for a word that has none, such as "enlarged"."""
    if phrase.endswith(("s", "ed", "ing", "ic", "ous")) and not phrase.endswith("marking"):
        return []
    return [phrase[:-1] + "ies"] if phrase.endswith("y") and phrase[-2] not in "aeiou" else [phrase + "s"]


def misspellings(words: list[str], known_words: set[str]) -> dict[str, str]:
    """Return {misspelt: right} of all words one slip away: a letter missing, added, wrong, or two swapped.

    ``known_words``, and words one slip away from two of ``words``, are not changed.
    """
    word_by_slip: dict[str, str | None] = {}
    for word in words:
        for slip in _slips(word) - known_words - set(words):
            first_word = word_by_slip.get(slip, word)
            is_unambiguous = first_word in (word, word.removesuffix("s"))  # of a word and its plural the word
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
CUE_SETS = ("negation", "no_new", "strong", "suspicion", "weak", "elsewhere")
"""Scope sets; each is one negspacy component with an extension attribute of that name."""


@dataclass(frozen=True)
class Entity:
    """A row of ``entities.yaml``; the file explains the fields."""

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
    """A finding told by a subject and a state, at most ``gap`` words apart."""

    entity: Entity
    gap: int
    rank: int


class Lexicon:
    """Everything the rules engine knows, ready to match.

    ``match(doc)`` gives (tag, value, start, end) of every phrase; tags: entity, cancel, subject, state, side, level,
    fused, place, link, bound, alternative, end, affirming, verb, hedged, cue_with, deny, deny_not, deny_after, not_end,
    half, setting, reversed, aside, operation, carries, bears, refuted, denied_that, changes, unfinished, likewise,
    here, exceptions, persists, on_prior, device.
    """

    def __init__(self, folder: str | Path):
        data = {name: yaml.safe_load((Path(folder) / f"{name}.yaml").read_text(encoding="utf-8")) for name in FILES}
        data = fill_slots(data, data.pop("slots"))
        self.nlp = spacy.blank("en")
        self.nlp.tokenizer = Tokenizer(self.nlp.vocab)
        self.entities = {row["name"]: _entity(row) for row in data["entities"]["entities"]}
        self.entities |= {row["name"]: _entity(row) for row in data["composites"]["composite_entities"]}
        self.locations = data["locations"]
        self.links, self.scope = data["links"], data["scope"]
        self._matcher = PhraseMatcher(self.nlp.vocab, attr="LOWER")
        self._values: dict[int, list[tuple[str, object]]] = {}
        self.phrases: dict[str, list[tuple[str, object]]] = {}
        self._add_entities(data["entities"], data["composites"]["composites"])
        self._add_locations(data["locations"])
        self._add_scope(data["scope"], data["links"])
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
        self.behind = {key: frozenset(words) for key, words in self.scope["behind"].items()}
        self.adjacent = frozenset(self.scope["negation"]["adjacent"])
        self.not_adjacent = frozenset(self.scope["negation"]["not_adjacent"])
        self.unassessed = tuple(tuple(phrase.split()) for phrase in self.scope["unassessed"])
        self.touching = tuple(" " + phrase for phrase in self.scope["negation"]["touching"])
        self.affirming_after_with = frozenset(self.scope["affirming_after_with_only"])
        self.articles = frozenset(self.scope["articles"])
        self.affirming_after_denial = self.articles.union(map(str, self.scope["affirming_after_denial"]))
        self.told_of = {key: frozenset(words) for key, words in self.scope["told_of"].items()}
        self.one_sizes = frozenset(self.scope["one_sizes"])
        self.anaphora = _by_first(tuple(phrase.split()) for phrase in self.links["anaphora"])
        self.breaks = frozenset(data["composites"]["composite_breaks"])
        self.joins = frozenset(data["composites"]["composite_joins"])
        self.steady = frozenset(data["composites"]["composite_steady"])
        self.link_gap, self.link_breaks = self.links["gap"], frozenset(self.links["breaks"])
        self.link_adjectives = frozenset(self.links["adjectives"])
        self.not_linked = frozenset(self.links["not_linked"])
        self.joint = frozenset(self.links["joint"])
        for name in (
            "within", "place_led", "carried", "portions", "inherits", "inherit_words", "local", "pointers", "healthy",
            "without", "views", "behind_both", "choices", "causes", "possible_diseases", "bearers",
        ):  # fmt: skip
            setattr(self, name, frozenset(self.locations[name]))
        self.gap_breaks = frozenset(self.locations["gap_breaks"])
        self.shares, self.beside = frozenset(self.locations["shares"]), frozenset(self.locations["beside"])
        self.inside = frozenset(self.locations["inside"])
        self.refuted_inside = frozenset(self.scope["refuted_inside"])
        self.refuted_before = frozenset(self.scope["refuted_before"])
        self.resumed = {tuple(str(phrase).split()) for phrase in self.scope["resumed"]}
        self.several = {tuple(str(phrase).split()) for phrase in self.scope["several"]}
        self.stand_ins, self.answers = self.scope["stand_ins"], self.scope["answers"]
        self.one_not_before = frozenset(self.scope["one_not_before"])
        self.elided_states = frozenset(self.scope["elided_states"])
        self.quantities = frozenset(self.scope["quantities"]) | frozenset(map(str, self.scope["affirming"]))
        self.asks = frozenset(self.scope["asks"])
        self.before_place = frozenset(self.locations["before_place"])

    def tokens(self, text: str) -> list[Token]:
        """Return the tokens of a sentence, shorthand and misspelt words as the words they stand for."""
        return self._tokens(text)

    def cued(self, doc: Doc) -> list[str]:
        """Return the scope sets of which a cue stands in ``doc``, in their order: of most none does."""
        cued_names = {self.nlp.vocab.strings[key] for key, _, _ in self._cued(doc)}
        return [name for name in CUE_SETS if name in cued_names]

    def match(self, doc: Doc) -> list[tuple[str, object, int, int]]:
        """Return (tag, value, start, end) of all phrases of the lexicon in ``doc``, by start."""
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

    def _add_scope(self, scope: dict, links: dict) -> None:
        for grade, phrases in links["links"].items():
            self._put("link", grade, phrases)
        for grade, phrases in links["reversed"].items():
            self._put("reversed", grade, phrases)
        self._put("bound", None, links["bound"])
        self._put("alternative", None, links["alternatives"])
        self._put("end", None, scope["ends"])
        self._put("not_end", None, scope["not_ends"])
        self._put("affirming", None, scope["affirming"])
        self._put("verb", None, scope["verbs"])
        self._put("hedged", None, scope["weak"]["after"])
        self._put("deny", None, scope["negation"]["before"])
        cues = [p for row in scope.values() if isinstance(row, dict) for p in row.get("before", ())]
        cues += [p for phrases in links["links"].values() for p in phrases]
        self._put("cue_with", None, sorted({str(p) for p in cues if str(p).endswith(" with")}))
        self._put("deny_not", None, scope["negation"]["not"])
        self._put("aside", None, scope["elsewhere"]["before"])
        self._put("operation", None, scope["operations"])
        self._put("carries", None, scope["carries_hedge"])
        self._put("bears", None, scope["bears_hedge"])
        self._put("setting", None, scope["behind"]["setting"])
        self._put("deny_after", None, scope["negation"]["after"])
        for tag in (
            "refuted", "denied_that", "changes", "unfinished", "likewise", "exceptions", "persists", "on_prior",
            "states", "appeared", "beyond", "not_all",
        ):  # fmt: skip
            self._put(tag, None, scope[tag])
        self._put("here", None, self.locations["here"])

    def _negex(self, name: str) -> Negex:
        """One negspacy component: its terms from the YAML, its clauses from our own sentence starts."""
        phrases = self._phrases_of(name)
        terms = {
            "pseudo_negations": phrases["not"],
            "preceding_negations": phrases["before"],
            "following_negations": phrases["after"],
            "termination": [],
        }
        return Negex(self.nlp, name, terms, extension_name=name, span_keys=["mentions"])

    def _phrases_of(self, name: str) -> dict[str, list[str]]:
        """Return the phrases of a scope set: cues before and after what they reach, and phrases that are none."""
        row = self.scope[name]
        if isinstance(row, list):
            row = {"before": row, "after": [], "not": []}
        return {key: [str(phrase).lower() for phrase in row[key]] for key in ("before", "after", "not")}


def _entity(row: dict) -> Entity:
    values = {key: value for key, value in row.items() if key != "words"}
    return Entity(**values | {"leaves_open": tuple(row.get("leaves_open", ()))})


def _by_first(phrases: Iterable[tuple[str, ...]]) -> dict[str, list[tuple[str, ...]]]:
    """Return {first word: its phrases}."""
    phrases_by_word: dict[str, list[tuple[str, ...]]] = {}
    for phrase in phrases:
        phrases_by_word.setdefault(phrase[0], []).append(phrase)
    return phrases_by_word


@cache
def load_lexicon(folder: str) -> Lexicon:
    """Read a lexicon, once per process."""
    return Lexicon(folder)


def digest_lexicon(folder: str | Path) -> str:
    """Return a short digest of the lexicon's files: the same rules and the same digest give the same tuples."""
    state = hashlib.blake2b(digest_size=8)
    for name in FILES:
        state.update((Path(folder) / f"{name}.yaml").read_bytes())
    return state.hexdigest()
