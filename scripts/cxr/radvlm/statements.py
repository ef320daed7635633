"""What a text states of a picture: findings with polarity, certainty, place and size, as the rules engine reads them.

Conversations are checked by it, and answers are scored by it. Each sentence is read by itself; equal sentences are read
once.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LESIONS, LOBE_ZONES, LUNGS, SIDES, ZONE_LEVELS
from cxr.language.reports import sentences
from cxr.language.reports.rules import context, lexicon, structure

RESOURCE_FILES = ("radvlm/statements.yaml", "lexicon")
HEDGES = ("definite", "strong", "weak")
"""Grades of certainty, the most certain first; a statement's ``hedge`` is the number of its own."""
_ZONES = {label: frozenset((label,)) for side in SIDES for label in (f"{side} {level}" for level in ZONE_LEVELS)}
_ZONES |= {lung: frozenset(f"{lung.split()[0]} {level}" for level in ZONE_LEVELS) for lung in LUNGS}
_ZONES |= {lobe: frozenset(zones) for lobe, zones in LOBE_ZONES.items()}
CACHED = 200_000
"""Texts that are read once: conversations, and the studies of a source, say the same."""
_CLAUSE, _SIZED = re.compile(r"[,;:.]| and | or | with | but "), re.compile(r"[a-z]+(?:-sized)?")
_EITHER = re.compile(r"\b(?:both|either) sides?\b")
_NONE: frozenset[str] = frozenset()
_BOTH = frozenset(("bilateral", "both", "bibasilar", "bibasal"))


@dataclass(frozen=True)
class Statement:
    """A finding that a sentence affirms or denies.

    lesion: its type of the seven, if it has one; hedge: 0 definite, 1 likely, 2 possible; sides: right, left; zones: of
    the eight zones of the lungs; place: its words, as the sentence has them; sizes: small, moderate, large; limits:
    words that limit a denial ("no large effusion"); of: the finding that it explains ("opacity, likely pneumonia");
    sentence: its number; span: [start, end) in its sentence.
    """

    entity: str
    lesion: str | None
    affirmed: bool
    hedge: int = 0
    sides: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    place: tuple[str, ...] = ()
    sizes: frozenset[str] = frozenset()
    limits: tuple[str, ...] = ()
    of: str | None = None
    sentence: int = 0
    span: tuple[int, int] = (0, 0)
    denies: bool = True

    @cached_property
    def keys(self) -> frozenset[str]:
        """Names by which it is the same finding as another."""
        return frozenset((self.entity, self.lesion) if self.lesion else (self.entity,))

    def numbered(self, sentence: int) -> "Statement":
        """Return the statement as one of a sentence of this number."""
        if sentence == self.sentence:
            return self
        statement = object.__new__(Statement)  # what dataclasses.replace does, six times as fast
        statement.__dict__.update(self.__dict__, sentence=sentence)
        return statement

    @property
    def placed(self) -> bool:
        return bool(self.sides or self.zones)

    def overlaps(self, statement: "Statement") -> bool:
        """Tell whether both may speak of one place; a statement without a place speaks of any."""
        if not (self.placed and statement.placed):
            return True
        shared = self.sides & statement.sides
        return bool(self.zones & statement.zones) if self.zones and statement.zones else bool(shared)


@dataclass(frozen=True)
class Words:
    """What the resource holds: patterns, sizes {word: size}, and words that limit a denial."""

    normal: Mapping[str, re.Pattern]
    apart: re.Pattern
    sizes: Mapping[str, str]
    limits: frozenset[str]
    general_devices: frozenset[str]
    views: Mapping[str, re.Pattern]
    sexes: Mapping[str, re.Pattern]
    patterns: Mapping[str, re.Pattern]


@cache
def words() -> Words:
    """Return the words of the resource."""
    resource = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    normal = {name: re.compile(pattern) for name, pattern in resource["normal"].items()}
    plain = ("comparison", "date", "order", "meaning", "here", "place", "no_devices", "changes")
    patterns = {name: re.compile(resource[name]) for name in plain} | {"name": re.compile(resource["name"])}
    return Words(
        {name: normal[name] for name in ("lungs", "heart", "all")}, normal["apart"],
        {word: size for size, size_words in resource["sizes"].items() for word in size_words},
        frozenset(resource["limits"]), frozenset(resource["general_devices"]),
        {name: re.compile(pattern) for name, pattern in resource["views"].items()},
        {name: re.compile(pattern) for name, pattern in resource["sexes"].items()}, patterns,
    )  # fmt: skip


@cache
def known() -> lexicon.Lexicon:
    """Return the lexicon of reports."""
    return lexicon.load_lexicon(str(Path(RESOURCES) / RESOURCE_FILES[1]))


def split(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [text[start:end] for start, end in sentences.split(text)]


def of_text(sentence_texts: Sequence[str]) -> list[Statement]:
    """Return the statements of sentences that are read together, numbered from 1: "this" may refer back."""
    return list(_of_text(tuple(sentence_texts)))


def of_sentence(sentence: str) -> tuple[Statement, ...]:
    """Return the statements of a sentence that is read by itself."""
    return _by_itself(sentence)[0]


@lru_cache(maxsize=CACHED)
def _of_text(sentence_texts: tuple[str, ...]) -> tuple[Statement, ...]:
    """Read together the sentences that ties join; the others read as they do alone."""
    statements: list[Statement] = []
    start = 0
    for end in _ends(sentence_texts):
        read = of_sentence(sentence_texts[start]) if end == start + 1 else _together(sentence_texts[start:end])
        statements += (statement.numbered(start + statement.sentence) for statement in read)
        start = end
    return tuple(statements)


def _ends(sentence_texts: Sequence[str]) -> list[int]:
    """Return where the groups of sentences that ties join end. Nothing stands before the first, nor behind the last."""
    joined = [False] * len(sentence_texts)  # to the sentence before
    on = gives = False
    for at, ties in enumerate(_by_itself(sentence)[1] for sentence in sentence_texts):
        if ties.back:
            joined[1 : at + 1] = [True] * at
        elif on or (ties.takes and gives):
            joined[at] = True
        on, gives = ties.on, ties.gives or joined[at]  # what is read together may have a place from another
    return [at for at in range(1, len(sentence_texts)) if not joined[at]] + [len(sentence_texts)] * bool(sentence_texts)


@lru_cache(maxsize=CACHED)
def _together(sentence_texts: tuple[str, ...]) -> tuple[Statement, ...]:
    return tuple(_statements(structure.structure(list(sentence_texts), known(), unsided_effusion=True), sentence_texts))


@lru_cache(maxsize=CACHED)
def _by_itself(sentence: str) -> tuple[tuple[Statement, ...], context.Ties]:
    tuples, ties = structure.by_itself(sentence, known(), unsided_effusion=True)
    return tuple(_statements(tuples, (sentence,))), ties


def unplaced(statement: Statement) -> Statement:
    """Return a statement without its place."""
    return replace(statement, sides=frozenset(), zones=frozenset(), place=())


def _statements(tuples: Iterable[Mapping], sentence_texts: Sequence[str]) -> list[Statement]:
    statements = []
    for finding in tuples:
        text = sentence_texts[finding["sentence_index"] - 1]
        sides, zones, place = _placed(finding, text)
        sizes, limits = _before(text[: finding["span"][0]], text[finding["span"][0] : finding["span"][1]])
        statement = Statement(
            finding["entity"], finding["lesion_type"], finding["presence"] == "positive",
            HEDGES.index(finding["hedge"]), sides, zones, place, sizes, limits, None,
            finding["sentence_index"], tuple(finding["span"]), finding["denies"],
        )  # fmt: skip
        statements.append(statement)
        hedge = HEDGES.index(finding["predicted_hedge"]) if finding["predicted_hedge"] else 0
        for name in finding["candidates"] if statement.affirmed else ():
            lesion = known().entities[name].lesion if name in known().entities else None
            statements.append(
                replace(
                    statement,
                    entity=name,
                    lesion=lesion or _lesion(name),
                    hedge=max(hedge, statement.hedge),
                    of=statement.entity,
                )
            )
    return statements


def _lesion(name: str) -> str | None:
    return name if name in LESIONS else None


def _placed(finding: Mapping, text: str) -> tuple[frozenset[str], frozenset[str], tuple[str, ...]]:
    """Return sides, zones and words of a place; a place that the text does not name is none."""
    if not finding["location"]:
        return (frozenset(SIDES) if _EITHER.search(text.lower()) else _NONE), _NONE, ()
    zones = frozenset().union(*(_ZONES[label] for label in finding["labels"]))
    place_words = {word for text in finding["location"] for word in text.split()}
    sides = {side for side in SIDES if side in place_words or any(zone.startswith(side) for zone in zones)}
    return frozenset(SIDES if place_words & _BOTH else sides), zones, tuple(finding["location"])


def _before(text: str, name: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the sizes and limits that the words before a finding, in its clause, and its own words tell."""
    clause = _CLAUSE.split(text.lower())[-1]
    nearby_words = _SIZED.findall(f"{clause} {name.lower()}")[-8:]
    sizes, limits = words().sizes, words().limits
    qualifiers = [word for word in nearby_words if word in sizes or word in limits]
    if not qualifiers:
        return _NONE, ()
    return frozenset(sizes[word] for word in qualifiers if word in sizes), tuple(
        word for word in qualifiers if word in limits
    )
