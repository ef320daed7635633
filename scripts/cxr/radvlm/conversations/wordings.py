"""Wordings of the engine ``rules`` for questions, answers, and names of findings and places.

The wordings of a question depend on its act (what it asks for, such as size) and register (who asks, such as student).
Those of an answer depend on the act and a case, such as a degree of certainty. ``(a|b)`` in a wording is a choice. Each
combination of choices is a wording with a number of its own.
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
    """The noun of a finding."""

    singular: str
    plural: str = ""  # empty for a mass noun, such as edema


@dataclass(frozen=True, eq=False)
class Wordings:
    """All words from which the engine ``rules`` builds conversations."""

    nouns: Mapping[str, Noun]  # {entity: noun}
    sizes: Mapping[str, str]  # {size word of a report: adjective}
    places: Sequence[tuple[re.Pattern, str]]  # (pattern of a report's location, wording)
    bare: Mapping[str, Sequence[str]]  # {entity: locations that add nothing to its noun}
    organs: Mapping[str, re.Pattern]  # {organ: pattern}
    registers: Sequence[str]  # clinician, student, terse
    questions: Mapping[str, Mapping[str, Sequence[str]]]  # {act: {register: wordings}}
    answers: Mapping[str, object]  # {act: wordings, or {case: wordings}}
    terms: Mapping[str, str]  # {term: definition}

    @lru_cache(maxsize=_CACHE_SIZE)  # noqa: B019 - there is one Wordings in a process
    def place(self, text: str) -> str:
        """Return the wording of a location in a report, or "" if no pattern matches."""
        hits = ((pattern.fullmatch(text), say) for pattern, say in self.places)
        return next((hit.expand(say) for hit, say in hits if hit), "")

    def question(self, act: str, register: str, rng: Random, slots: Mapping[str, str]) -> tuple[Callable[[], str], str]:
        """Draw a wording of a question, by what it asks for (``act``) and who asks (``register``). Return (function
        that fills in its slots, id of the wording)."""
        texts = self.questions[act][register]
        number = rng.choice(range(len(texts)))

        def fill() -> str:
            text = to_sentence(fill_slots(texts[number], slots))  # a request ("Outline it.") keeps its full stop
            return f"{text[:-1]}?" if text.endswith(".") and _ASKS.match(text) else text

        return fill, f"{act}.{register}.{number}"

    def terms_in(self, texts: Iterable[str]) -> list[tuple[str, str]]:
        """Return (term, definition) of each glossary term in the texts, in glossary order."""
        return [self._glossary[at][:2] for at in sorted(frozenset().union(*map(self._terms_used, texts)))]

    @lru_cache(maxsize=_CACHE_SIZE)  # noqa: B019
    def _terms_used(self, text: str) -> frozenset[int]:
        words, terms = set(_WORD.findall(text.lower())), enumerate(self._glossary)
        return frozenset(at for at, (*_, first, pattern) in terms if first in words and pattern.search(text))

    @cached_property
    def _glossary(self) -> list[tuple[str, str, str, re.Pattern]]:
        """The glossary as tuples (term, definition, first word of the term in lower case, pattern of the term)."""
        return [
            (term, definition, _WORD.findall(term.lower())[0], re.compile(rf"\b{re.escape(term)}\b", re.IGNORECASE))
            for term, definition in self.terms.items()
        ]

    def answer(self, act: str, case: str | int | None, rng: Random, slots: Mapping[str, str]) -> Callable[[], str]:
        """Draw a wording of an answer, and return a function that fills it in. ``act``: what the question asks for;
        ``case``: case of the answer, such as a degree of certainty, or None."""
        act_wordings = self.answers[act]
        text = rng.choice(act_wordings if case is None else act_wordings[case])
        return lambda: to_sentence(fill_slots(text, slots))


def expand_choices(text: str) -> list[str]:
    """Return all wordings of a text with choices. "(a|the) film" gives "a film" and "the film"."""
    parts = _CHOICE.split(text)
    choices = [part.split("|") if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(combination) for combination in product(*choices)]


class _Slots(dict):
    """Values of slots ``{name}``. The slot ``{Name}`` gives the value with a capital."""

    def __missing__(self, name: str) -> str:
        if name[:1].islower():
            raise KeyError(name)
        return capitalize(self[name[:1].lower() + name[1:]])


def fill_slots(text: str, slots: Mapping[str, str]) -> str:
    """Return a wording with its slots ``{name}`` filled in. The slot ``{Name}`` gives the value with a capital."""
    return text.format_map(_Slots(slots))


def capitalize(text: str) -> str:
    """Return a text with a capital first letter. The other letters stay."""
    return text[:1].upper() + text[1:]


@lru_cache(maxsize=_CACHE_SIZE)
def to_sentence(text: str) -> str:
    """Return a text as a sentence: capitalized, with regular spaces, and with one punctuation mark at its end."""
    if _UNTIDY.search(text):
        text = _BEFORE_MARK.sub(r"\1", " ".join(text.split()))
        text = _TWO_MARKS.sub(r"\1", text)
    return capitalize(text)


def agree_with_plural(text: str, many: str) -> str:
    """Return a text in which "are" and "do" replace "is" and "does" beside the plural noun ``many``."""

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
    """Return an answer with "it" and its verb in the plural. "It is …" becomes "They are …"."""
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
    """Return the wordings, which are loaded once per process."""
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
    """Return {register: wordings}. A wording that several registers have belongs to the first."""
    earlier_wordings: set[str] = set()
    wordings_by_register = {}
    for register, texts in texts_by_register.items():
        wordings = dict.fromkeys(wording for text in texts for wording in expand_choices(text))
        wordings_by_register[register] = [wording for wording in wordings if wording not in earlier_wordings]
        earlier_wordings.update(wordings)
    return wordings_by_register
