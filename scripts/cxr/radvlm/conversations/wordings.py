"""Wordings of the engine rules: questions by act and register, answers by act and case, names of findings and places.

``(a|b)`` in a wording is a choice; each combination is a wording of its own, numbered for its id.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import product
from random import Random

from cxr.base.resources import load_resource

RESOURCE_FILES = ("radvlm/conversations.yaml", "radvlm/glossary.yaml")
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_ASKS = re.compile(r"(?:can|could|would|will|do|does|is|are|what|which|where|how|should|may|and|any)\b", re.IGNORECASE)
_BEFORE_MARK, _TWO_MARKS = re.compile(r"\s+([?.!,:;])"), re.compile(r"([?.!])[.]$")
_UNTIDY = re.compile(r"^\s|\s[\s?.!,:;]|[^\S ]|[?.!][.]$|\s$")  # irregular spaces, or two marks at the end
_WORD = re.compile(r"\w+")
_BEFORE_NOUN = re.compile(r"\b(is|does)( (?:(?<=there is )(?:also|probably|likely) )?)", re.IGNORECASE)
_AFTER_NOUN = re.compile(r"(?: [a-z]+){0,6}? (is)\b")
_PLURAL = {"is": "are", "does": "do"}
_CACHE_SIZE = 200_000  # size of the caches; most proposed wordings occur again


@dataclass(frozen=True)
class Noun:
    """Noun of a finding; ``plural`` is empty for a mass noun."""

    singular: str
    plural: str = ""


@dataclass(frozen=True, eq=False)
class Wordings:
    """Wordings. nouns: {entity: noun}; sizes: {word: adjective}; places: (pattern, words); bare: {entity: uninformative
    places}; organs: {organ: pattern}; registers; questions: {act: {register: wordings}}; answers: {act: wordings, or
    {case: wordings}}; terms: {term: definition}.
    """

    nouns: Mapping[str, Noun]
    sizes: Mapping[str, str]
    places: Sequence[tuple[re.Pattern, str]]
    bare: Mapping[str, Sequence[str]]
    organs: Mapping[str, re.Pattern]
    registers: Sequence[str]
    questions: Mapping[str, Mapping[str, Sequence[str]]]
    answers: Mapping[str, object]
    terms: Mapping[str, str]

    @lru_cache(maxsize=_CACHE_SIZE)  # noqa: B019 - there is one Wordings in a process
    def place(self, text: str) -> str:
        """Return the wording of a report's location phrase; "" if no pattern matches."""
        hits = ((pattern.fullmatch(text), say) for pattern, say in self.places)
        return next((hit.expand(say) for hit, say in hits if hit), "")

    def question(self, act: str, register: str, rng: Random, slots: Mapping[str, str]) -> tuple[Callable[[], str], str]:
        """Draw a question wording; return a function that fills it in, and its id."""
        texts = self.questions[act][register]
        number = rng.choice(range(len(texts)))

        def fill() -> str:
            text = to_sentence(fill_slots(texts[number], slots))  # a request ("Outline it.") keeps its full stop
            return f"{text[:-1]}?" if text.endswith(".") and _ASKS.match(text) else text

        return fill, f"{act}.{register}.{number}"

    def terms_in(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """Return (term, definition) of the glossary terms in texts, in glossary order."""
        return [self._glossary[at][:2] for at in sorted(frozenset().union(*map(self._terms_used, texts)))]

    @lru_cache(maxsize=_CACHE_SIZE)  # noqa: B019
    def _terms_used(self, text: str) -> frozenset[int]:
        words, terms = set(_WORD.findall(text.lower())), enumerate(self._glossary)
        return frozenset(at for at, (*_, first, pattern) in terms if first in words and pattern.search(text))

    @cached_property
    def _glossary(self) -> list[tuple[str, str, str, re.Pattern]]:
        """(term, definition, first word in lower case, pattern) of each term."""
        return [
            (term, definition, _WORD.findall(term.lower())[0], re.compile(rf"\b{re.escape(term)}\b", re.IGNORECASE))
            for term, definition in self.terms.items()
        ]

    def answer(self, act: str, case: str | int | None, rng: Random, slots: Mapping[str, str]) -> Callable[[], str]:
        """Draw an answer wording and return a function that fills it in. ``case``: None for acts without cases."""
        act_wordings = self.answers[act]
        text = rng.choice(act_wordings if case is None else act_wordings[case])
        return lambda: to_sentence(fill_slots(text, slots))


def expand_choices(text: str) -> list[str]:
    """Expand the choices of a text into all wordings, in order."""
    parts = _CHOICE.split(text)
    choices = [part.split("|") if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(combination) for combination in product(*choices)]


class _Slots(dict):
    """Slot values; a capitalized slot name gives the capitalized value."""

    def __missing__(self, name: str) -> str:
        if name[:1].islower():
            raise KeyError(name)
        return capitalize(self[name[:1].lower() + name[1:]])


def fill_slots(text: str, slots: Mapping[str, str]) -> str:
    """Fill the slots of a wording; the value of a slot with a capitalized name is capitalized."""
    return text.format_map(_Slots(slots))


def capitalize(text: str) -> str:
    """Capitalize the first letter only."""
    return text[:1].upper() + text[1:]


@lru_cache(maxsize=_CACHE_SIZE)
def to_sentence(text: str) -> str:
    """Convert a text to a sentence: capitalized, with tidy spaces and one final mark."""
    if _UNTIDY.search(text):
        text = _BEFORE_MARK.sub(r"\1", " ".join(text.split()))
        text = _TWO_MARKS.sub(r"\1", text)
    return capitalize(text)


def agree_with_plural(text: str, many: str) -> str:
    """Make the verbs of a text agree with its plural subject ``many``."""

    def plural(hit: re.Match) -> str:
        if not hit.string.startswith(many, hit.end()):
            return hit[0]
        verb = _PLURAL[hit[1].lower()]
        return (verb if hit[1].islower() else capitalize(verb)) + hit[2]

    text = _BEFORE_NOUN.sub(plural, text)
    low, name, end = text.lower(), many.lower(), 0
    while (at := low.find(name, end)) >= 0:
        end = at + len(name)
        if hit := _AFTER_NOUN.match(low, end):
            text = f"{text[: hit.start(1)]}are{text[hit.end(1) :]}"
            low, end = text.lower(), hit.start(1)
    return text


def use_plural_pronouns(text: str) -> str:
    """Put the pronouns in an answer about "it", and their verbs, into the plural."""
    for pattern, replacement in _PLURAL_PRONOUNS:
        text = re.sub(pattern, replacement, text)
    return text


_PLURAL_PRONOUNS = (
    (r"^It is\b", "They are"), (r"^It (lie|look|represent|reflect)s\b", r"They \1"),
    (r"^It (may|might|could)\b", r"They \1"), (r"^It most likely represents\b", "They most likely represent"),
    (r"\b(see|find|call) it\b", r"\1 them"),
)  # fmt: skip


@cache
def load_wordings() -> Wordings:
    """Load the wordings, once per process."""
    resource, terms = (load_resource(name) for name in RESOURCE_FILES)
    questions = {act: _unique_wordings(texts_by_register) for act, texts_by_register in resource["questions"].items()}
    return Wordings(
        {name: Noun(forms["one"], forms.get("many", "")) for name, forms in resource["nouns"].items()},
        resource["sizes"],
        [(re.compile(place["of"]), place["say"]) for place in resource["places"]], resource["bare_of"],
        {name: re.compile(pattern, re.IGNORECASE) for name, pattern in resource["organs"].items()},
        resource["registers"], questions, resource["answers"], terms,
    )  # fmt: skip


def _unique_wordings(texts_by_register: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the wordings by register; a wording in several registers belongs to the first."""
    earlier_wordings: set[str] = set()
    wordings_by_register = {}
    for register, texts in texts_by_register.items():
        wordings = dict.fromkeys(wording for text in texts for wording in expand_choices(text))
        wordings_by_register[register] = [wording for wording in wordings if wording not in earlier_wordings]
        earlier_wordings.update(wordings)
    return wordings_by_register
