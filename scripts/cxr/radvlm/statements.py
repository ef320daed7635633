"""Statements of a text: findings, affirmed or denied, with certainty, location and size, read by the rules engine."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeVar

from cxr.base.paths import RESOURCES
from cxr.base.resources import load_resource
from cxr.base.vocabulary import LESIONS, LOBE_ZONES, LUNGS, SIDES, ZONE_LEVELS
from cxr.language.reports import sentences
from cxr.language.reports.rules import structure
from cxr.language.reports.rules.lexicon import digest_lexicon, load_lexicon

RESOURCE_FILES = ("radvlm/statements.yaml",)
HEDGES = ("definite", "strong", "weak")  # grades of certainty; ``Statement.hedge`` is an index into them
_ZONES = {label: frozenset((label,)) for side in SIDES for label in (f"{side} {level}" for level in ZONE_LEVELS)}
_ZONES |= {lung: frozenset(f"{lung.split()[0]} {level}" for level in ZONE_LEVELS) for lung in LUNGS}
_ZONES |= {lobe: frozenset(zones) for lobe, zones in LOBE_ZONES.items()}
T = TypeVar("T")
CACHE_SIZE = 200_000  # size of the caches of parsed texts; the same sentences occur in many studies and conversations
_CLAUSE, _SIZED = re.compile(r"[,;:.]| and | or | with | but "), re.compile(r"[a-z]+(?:-sized)?")
_EITHER = re.compile(r"\b(?:both|either) sides?\b")
_NONE: frozenset[str] = frozenset()
_BOTH = frozenset(("bilateral", "both", "bibasilar", "bibasal"))


@dataclass(frozen=True)
class Statement:
    """A finding that a sentence affirms or denies."""

    entity: str  # name of the finding in the lexicon
    lesion: str | None  # lesion type; None for other findings
    affirmed: bool
    hedge: int = 0  # certainty: 0 definite, 1 likely, 2 possible
    sides: frozenset[str] = frozenset()  # right, left
    zones: frozenset[str] = frozenset()  # lung zones
    place: tuple[str, ...] = ()  # location phrases of the sentence
    sizes: frozenset[str] = frozenset()  # small, moderate, large
    limits: tuple[str, ...] = ()  # words that limit a denial, such as "large" in "no large effusion"
    explains: str | None = None  # entity that this finding interprets, as in "opacity, likely pneumonia"
    sentence: int = 0  # number of the sentence, from 1
    span: tuple[int, int] = (0, 0)  # [start, end) of the finding in the sentence, in characters
    denies: bool = True  # False if a negation leaves the finding open, as in "no new effusion"

    @cached_property
    def keys(self) -> frozenset[str]:
        """The entity and the lesion type. Two statements with a common key are about the same finding."""
        return frozenset((self.entity, self.lesion) if self.lesion else (self.entity,))

    def with_number(self, sentence: int) -> "Statement":
        """Return a copy of the statement with another sentence number."""
        if sentence == self.sentence:
            return self
        statement = object.__new__(Statement)  # same result as dataclasses.replace, six times as fast
        statement.__dict__.update(self.__dict__, sentence=sentence)
        return statement

    @property
    def has_place(self) -> bool:
        return bool(self.sides or self.zones)

    def overlaps(self, statement: "Statement") -> bool:
        """Return whether both statements may refer to one location. A statement without location may refer to any."""
        if not (self.has_place and statement.has_place):
            return True
        shared = self.sides & statement.sides
        return bool(self.zones & statement.zones) if self.zones and statement.zones else bool(shared)


@dataclass(frozen=True)
class Patterns:
    """Patterns and word lists of ``resources/radvlm/statements.yaml``."""

    normal: Mapping[str, re.Pattern]  # statements that a structure (lungs, heart, all) is normal
    apart: re.Pattern  # words such as "otherwise", which make exceptions from "normal"
    sizes: Mapping[str, str]  # {word: small, moderate or large}
    limits: frozenset[str]  # words that limit a denial
    general_devices: frozenset[str]  # words that apply to any device
    views: Mapping[str, re.Pattern]  # {view code: pattern}
    sexes: Mapping[str, re.Pattern]  # {F or M: pattern}
    patterns: Mapping[str, re.Pattern]  # all other patterns, by name


@cache
def load_patterns() -> Patterns:
    """Return the patterns, which are loaded once per process."""
    resource = load_resource(RESOURCE_FILES[0])
    groups = (resource[name].items() for name in ("normal", "views", "sexes"))
    normal, views, sexes = ({name: re.compile(pattern) for name, pattern in group} for group in groups)
    sizes = {word: size for size, size_words in resource["sizes"].items() for word in size_words}
    limits, devices = frozenset(resource["limits"]), frozenset(resource["general_devices"])
    patterns = {name: re.compile(pattern) for name, pattern in resource.items() if isinstance(pattern, str)}
    return Patterns(normal, normal.pop("apart"), sizes, limits, devices, views, sexes, patterns)


def read_digests(code: str, **resources: str) -> dict[str, str]:
    """Return {name: digest} of the lexicon and the ``resources`` {name: file}, and ``code``, the digest of the code."""
    contents = {name: (Path(RESOURCES) / file).read_bytes() for name, file in resources.items()}
    digests = {name: hashlib.blake2b(content, digest_size=8).hexdigest() for name, content in contents.items()}
    return {"code": code} | digests | {"lexicon": digest_lexicon()}


def split_batches(rows: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the rows in lists of at most ``size`` rows. An engine gets one list at a time, which bounds the memory."""
    remaining = iter(rows)
    while batch := list(islice(remaining, size)):
        yield batch


def split_sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences.split_sentences(text)]


def read_statements(sentence_texts: Sequence[str]) -> list[Statement]:
    """Return the statements of consecutive sentences, numbered from 1. References such as "this" are resolved."""
    return list(_read_statements(tuple(sentence_texts)))


def read_phrase(text: str) -> list[Statement]:
    """Return the statements of a text. Each of its sentences is parsed without the others."""
    return [statement for sentence in split_sentences(text) for statement in read_sentence(sentence)]


def read_sentence(sentence: str) -> tuple[Statement, ...]:
    return _read_statements((sentence,))


@lru_cache(maxsize=CACHE_SIZE)
def _read_statements(sentence_texts: tuple[str, ...]) -> tuple[Statement, ...]:
    tuples = structure.structure_sentences(sentence_texts, unsided_effusion=True)
    return tuple(_build_statements(tuples, sentence_texts))


def _build_statements(tuples: Iterable[Mapping], sentence_texts: Sequence[str]) -> list[Statement]:
    statements = []
    for finding in tuples:
        text = sentence_texts[finding["sentence_index"] - 1]
        sides, zones, place = _find_place(finding, text)
        sizes, limits = _find_qualifiers(text[: finding["span"][0]], text[finding["span"][0] : finding["span"][1]])
        statement = Statement(
            finding["entity"], finding["lesion_type"], finding["presence"] == "positive",
            HEDGES.index(finding["hedge"]), sides, zones, place, sizes, limits, None,
            finding["sentence_index"], tuple(finding["span"]), finding["denies"],
        )  # fmt: skip
        statements.append(statement)
        hedge = HEDGES.index(finding["predicted_hedge"]) if finding["predicted_hedge"] else 0
        for name in finding["candidates"] if statement.affirmed else ():
            entity = load_lexicon().entities.get(name)
            lesion = (entity and entity.lesion) or (name if name in LESIONS else None)
            surest = max(hedge, statement.hedge)
            statements.append(replace(statement, entity=name, lesion=lesion, hedge=surest, explains=statement.entity))
    return statements


def _find_place(finding: Mapping, text: str) -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
    """Return (sides, zones, location phrases) of a finding. All are empty if the text names no location."""
    if not finding["location"]:
        return (frozenset(SIDES) if _EITHER.search(text.lower()) else _NONE), _NONE, ()
    zones = frozenset().union(*(_ZONES[label] for label in finding["labels"]))
    place_words = {word for text in finding["location"] for word in text.split()}
    sides = {side for side in SIDES if side in place_words or any(zone.startswith(side) for zone in zones)}
    return frozenset(SIDES if place_words & _BOTH else sides), zones, tuple(finding["location"])


def _find_qualifiers(text: str, name: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return (sizes, words that limit a denial). They stand in a finding's ``name``, or in the last clause of ``text``,
    which is the sentence before the name."""
    clause = _CLAUSE.split(text.lower())[-1]
    nearby_words = _SIZED.findall(f"{clause} {name.lower()}")[-8:]
    sizes, limits = load_patterns().sizes, load_patterns().limits
    qualifiers = [word for word in nearby_words if word in sizes or word in limits]
    if not qualifiers:
        return _NONE, ()
    limiting_words = tuple(word for word in qualifiers if word in limits)
    return frozenset(sizes[word] for word in qualifiers if word in sizes), limiting_words
