"""The words of the engine rules: questions by act and register, answers by act and case, names of findings and places.

``(a|b)`` in a wording stands for one of several; each combination is a wording of its own, with its number as id.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import product
from pathlib import Path
from random import Random

import yaml

from cxr.base.paths import RESOURCES

RESOURCE_FILES = ("radvlm/conversations.yaml", "radvlm/glossary.yaml")
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")
_ASKS = re.compile(r"(?:can|could|would|will|do|does|is|are|what|which|where|how|should|may|and|any)\b", re.IGNORECASE)
_BEFORE_MARK, _TWO_MARKS = re.compile(r"\s+([?.!,:;])"), re.compile(r"([?.!])[.]$")
_LOOSE = re.compile(r"^\s|\s[\s?.!,:;]|[^\S ]|[?.!][.]$|\s$")
"""What a sentence must be mended for: space that is not one blank between two words, two marks at its end."""
_WORD = re.compile(r"\w+")
_KEPT = 200_000
"""Texts that are mended once: of the questions that are offered, most are offered again."""


@dataclass(frozen=True)
class Noun:
    """How a finding is called: one of it, and many; ``many`` is empty for a mass noun."""

    one: str
    many: str = ""


@dataclass(frozen=True)
class Wordings:
    """nouns: {entity: noun}; sizes: {word: adjective}; adverbs: {adjective: adverb}; places: (pattern, words); bare:
    {entity: places that add nothing}; organs: {organ: pattern}; registers; questions: {act: {register: wordings}};
    answers: {act: wordings, or {case: wordings}}; terms: {term: definition}.
    """

    nouns: Mapping[str, Noun]
    sizes: Mapping[str, str]
    adverbs: Mapping[str, str]
    places: Sequence[tuple[re.Pattern, str]]
    bare: Mapping[str, Sequence[str]]
    organs: Mapping[str, re.Pattern]
    registers: Sequence[str]
    questions: Mapping[str, Mapping[str, Sequence[str]]]
    answers: Mapping[str, object]
    terms: Mapping[str, str]

    def question(self, act: str, register: str, rng: Random, slots: Mapping[str, str]) -> tuple[str, str]:
        """Return a question and the id of its wording."""
        held = self.questions[act][register]
        number = rng.randrange(len(held))
        return _question(filled(held[number], slots)), f"{act}.{register}.{number}"

    def terms_in(self, text: str) -> list[tuple[str, str]]:
        """Return the terms of the glossary that a text uses, with their definitions."""
        words = set(_WORD.findall(text.lower()))
        return [
            (term, self.terms[term]) for first, term in self._by_first if first in words and _named(term).search(text)
        ]

    @cached_property
    def _by_first(self) -> list[tuple[str, str]]:
        """The first word of each term in lower case, and the term."""
        return [(_WORD.findall(term.lower())[0], term) for term in self.terms]

    def answer(self, act: str, case: str | int | None, rng: Random, slots: Mapping[str, str]) -> Callable[[], str]:
        """Draw an answer's wording and return what fills it in.

        ``case``: of the act's, None where it has none; two cases are parted by a slash.
        """
        held = self.answers[act]
        for name in str(case).split("/") if case is not None else ():
            held = held[int(name) if name.isdigit() else name]
        text = rng.choice(held)
        return lambda: sentence(filled(text, slots))


@lru_cache(maxsize=1000)
def _named(term: str) -> re.Pattern:
    return re.compile(rf"\b{re.escape(term)}\b", re.IGNORECASE)


def expanded(text: str) -> list[str]:
    """Return all wordings that a text with choices stands for, in order."""
    parts = _CHOICE.split(text)
    choices = [part.split("|") if number % 2 else [part] for number, part in enumerate(parts)]
    return ["".join(one) for one in product(*choices)]


class _Slots(dict):
    """Texts of slots; of a slot with a capital that of the slot without it, with one."""

    def __missing__(self, name: str) -> str:
        if name[:1].islower():
            raise KeyError(name)
        return capital(self[name[:1].lower() + name[1:]])


def filled(text: str, slots: Mapping[str, str]) -> str:
    """Return a wording with its slots filled; a slot with a capital takes its text with one."""
    return text.format_map(_Slots(slots))


def capital(text: str) -> str:
    """Return a text with a capital as its first letter."""
    return text[:1].upper() + text[1:]


@lru_cache(maxsize=_KEPT)
def _question(text: str) -> str:
    """Return a filled wording as a question; equal ones are offered again and again."""
    return asked(sentence(text))


def sentence(text: str) -> str:
    """Return a text as a sentence: a capital first, one mark at its end."""
    if _LOOSE.search(text):
        text = _BEFORE_MARK.sub(r"\1", " ".join(text.split()))
        text = _TWO_MARKS.sub(r"\1", text)
    return capital(text)


def agreed(text: str, many: str) -> str:
    """Return a text whose verbs and pronouns agree with ``many``, the plural that it speaks of."""
    there, is_, does, after = _verbs(many)
    text = there.sub(r"\1here are \2", text)
    text = is_.sub(lambda hit: "Are " if hit[1] == "I" else "are ", text)
    text = does.sub(r"\1o ", text)
    return after.sub(r"\1 are", text)


@lru_cache(maxsize=10_000)
def _verbs(many: str) -> tuple[re.Pattern, ...]:
    """Return the patterns of the verbs that must agree with ``many``."""
    name = re.escape(many)
    return (
        re.compile(rf"\b([Tt])here is ((?:also|probably|likely) )?(?={name}\b)"),
        re.compile(rf"\b([Ii])s (?={name}\b)"),
        re.compile(rf"\b([Dd])oes (?={name}\b)"),
        re.compile(rf"({name}(?: [a-z]+){{0,6}}?) is\b", re.IGNORECASE),
    )


def they(text: str) -> str:
    """Return an answer about "it" as one about "them"."""
    for pattern, made in _THEY:
        text = re.sub(pattern, made, text)
    return text


_THEY = (
    (r"^It is\b", "They are"), (r"^It (lie|look|represent|reflect)s\b", r"They \1"),
    (r"^It (may|might|could)\b", r"They \1"), (r"^It most likely represents\b", "They most likely represent"),
    (r"\b(see|find|call) it\b", r"\1 them"),
)  # fmt: skip


def asked(text: str) -> str:
    """Return a question with its mark; an order ("Outline it.") keeps its stop."""
    return f"{text[:-1]}?" if text.endswith(".") and _ASKS.match(text) else text


@cache
def wordings() -> Wordings:
    """Return the wordings of the resource."""
    told, terms = (yaml.safe_load((Path(RESOURCES) / name).read_text(encoding="utf-8")) for name in RESOURCE_FILES)
    questions = {act: _by_register(held) for act, held in told["questions"].items()}
    return Wordings(
        {name: Noun(one["one"], one.get("many", "")) for name, one in told["nouns"].items()},
        told["sizes"], told["adverbs"],
        [(re.compile(one["of"]), one["say"]) for one in told["places"]], told["bare_of"],
        {name: re.compile(pattern, re.IGNORECASE) for name, pattern in told["organs"].items()},
        told["registers"], questions, told["answers"], terms,
    )  # fmt: skip


def _by_register(held: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the wordings of each register; what several have is the first's."""
    seen: set[str] = set()
    found = {}
    for register, texts in held.items():
        own = [one for text in texts for one in expanded(text) if one not in seen]
        found[register] = list(dict.fromkeys(own))
        seen.update(own)
    return found
