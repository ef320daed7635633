"""A second reader of reports. It collects evidence for negative pairs, the training pairs that deny a lesion.

The rules engine finds every phrase that it knows and applies the nearest denial to it. The second reader is stricter.
It parses whole clauses with a closed grammar and ignores every clause that it cannot parse completely. For each lesion
type, it answers three questions:

* Does the report *explicitly deny* the type? It does if the engine denies the type, the grammar parses a denial of the
  type, and every other mention of the type is in such a denial or in a sentence that affirms the type.
* Is the report *silent* about the type in a lung? It is if the report never mentions the type, and no neighbouring term
  (such as "blunting" for an effusion) occurs for this lung outside denials and descriptions of a normal state.
* If the type is affirmed, may it be denied *elsewhere*, at another location? It may, unless a word such as "diffuse" or
  "worse" makes the extent of the type unclear.

The word lists are ``resources/reading/witnesses.yaml`` and ``resources/reading/neighbours.yaml``.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import chain
from typing import NamedTuple

from cxr.base.paths import RESOURCES
from cxr.base.resources import load_resource
from cxr.base.vocabulary import LESIONS, SIDES
from cxr.language.reports.rules.lexicon import fill_slots, load_lexicon, plurals
from cxr.language.reports.rules.mentions import PLACED

RESOURCE_FILES = ("reading/witnesses.yaml", "reading/neighbours.yaml")
HEART = "cardiomegaly"
_NORMAL = ("normal", "unremarkable", "clear", "sharp", "intact", "preserved", "crisp", "well", "limits", "normality")
_ABNORMAL = ("not", "no", "abnormal", "borderline", "top", "upper", "small", "right", "left")
_HEART_PARTS = ("the", "size", "shadow", "contour", "index", ":")
_VERBS = ("is", "are", "was", "were", "be", "been")
_CLAUSE_ENDS = (",", ";", ".", "but")
_WHOLE_WORD = 3
"""A neighbouring term of at most this many letters must match a whole word. A longer term matches a word's start."""


class Denied(NamedTuple):
    """A denial that the grammar parses, in tokens [start, end) of its sentence. ``lesion`` is the denied lesion type.
    It is None if the text denies another finding, or only a degree of a finding ("no large effusion"). ``has_place``
    says whether the denial names a location."""

    start: int
    end: int
    lesion: str | None
    has_place: bool = False


class Sentence(NamedTuple):
    """Evidence in one sentence.

    ``denied``: lesion types that it denies. ``mentioned``: types that it mentions. ``uncovered``: types that it
    mentions outside its denials. ``neighbours``: (lesion type, side, term) of each neighbouring term, such as
    "blunting" for an effusion. ``is_wide``: whether a word such as "diffuse" makes the extent of a finding unclear.
    """

    denied: tuple[str, ...]
    mentioned: frozenset[str]
    uncovered: frozenset[str]
    neighbours: tuple[tuple[str, str, str], ...]
    is_wide: bool


@dataclass
class Witness:
    """Evidence in a report about one lesion type."""

    quotes: list[tuple[int, str]] = field(default_factory=list)
    """(section number, sentence) of each parsed denial, or an empty list if the report does not explicitly deny the
    type. Section 0 is the section from which findings are read."""
    is_mentioned: bool = False
    silent: list[str] = field(default_factory=list)  # Sides on which the report has no neighbouring term of the type
    neighbour: str | None = None  # First neighbouring term in the report
    elsewhere: bool = True  # Whether an affirmed type may be denied at other locations


class _Phrases:
    """Phrases indexed by their first word, to find the longest phrase at a token."""

    def __init__(self, values: dict[str, object]):
        self._by_first: dict[str, dict[int, dict[tuple[str, ...], object]]] = {}  # word -> length, longest first
        for phrase, value in sorted(values.items(), key=lambda row: -len(row[0].split())):
            words = tuple(phrase.split())
            self._by_first.setdefault(words[0], {}).setdefault(len(words), {})[words] = value

    def match(self, words: Sequence[str], at: int) -> tuple[int, object] | None:
        """Return (end, value) of the longest phrase that starts at token ``at``, or None if no phrase starts there.
        ``end`` is the index of the token after the phrase."""
        phrases = self._by_first.get(words[at]) if at < len(words) else None
        for length, by_words in phrases.items() if phrases else ():
            phrase = tuple(words[at : at + length])
            if phrase in by_words:
                return at + length, by_words[phrase]
        return None


class SecondReader:
    """A strict parser of denials. The grammar and the neighbouring terms have word lists of their own
    (``RESOURCE_FILES``). The names of findings and locations are those of the rules engine's lexicon."""

    def __init__(self) -> None:
        self._lexicon = lexicon = load_lexicon()
        data, neighbours = map(load_resource, RESOURCE_FILES)
        slots = {name: data[name] for name in ("seen_by", "sign", "of", "has", "fully", "gone", "is")}
        data = fill_slots(data, slots | {"verb": data["verbs"]})
        nouns: dict[str, object] = {}
        places: dict[str, object] = {}
        self._sides: dict[str, tuple[str, ...]] = {}
        for phrase, values in lexicon.phrases.items():
            for tag, value in values:
                if tag == "entity" and not value.predicted:
                    nouns[phrase] = value.lesion
                elif tag in PLACED:
                    places[phrase] = value
                    side = value if tag == "side" else value[0] if tag == "fused" else None
                    if side and " " not in phrase:
                        self._sides[phrase] = SIDES if side == "both" else (side,)
        cancelled = {phrase: "" for phrase, values in lexicon.phrases.items() if any(t == "cancel" for t, _ in values)}
        list_nouns = {phrase: None for phrase in data["other_nouns"] if phrase not in nouns}
        self._nouns = _Phrases(nouns | list_nouns | {form: None for phrase in list_nouns for form in plurals(phrase)})
        self._mentions = _Phrases(nouns | cancelled)
        self._places = _Phrases(places)
        self._modifiers, self._degrees = _phrases(data["modifiers"]), _phrases(data["degrees"])
        self._boundaries = {tuple(str(phrase).split()) for phrase in data["boundaries"]}
        self._negators, self._suggests = _phrases(data["negators"]), _phrases(data["suggests"])
        self._resolved_tails, self._tails = _phrases(data["resolved_tails"] + data["tails"]), _phrases(data["tails"])
        self._resolved, self._before_resolved = _phrases(data["resolved"]), frozenset(data["before_resolved"])
        self._separators, self._ends = frozenset(data["separators"]), _phrases(data["ends"])
        self._harmless = _phrases(data["harmless"])
        self._leads, self._landmarks = _phrases(data["leads"]), _phrases(data["heart_landmarks"])
        self._heart_edges, self._heart_sizes = frozenset(data["heart_edges"]), frozenset(data["heart_sizes"])
        self._verbs, self._guards = frozenset(data["verbs"]), frozenset(map(str, data["guards"]))
        self._heart_abnormal = frozenset(data["heart_abnormal"])
        self._heart_words, self._heart_normal = frozenset(data["heart_words"]), _phrases(data["heart_normal"])
        self._wide = _phrases(data["wide"])
        self._neutral = _phrases(neighbours["neutral"])
        self._stems = _Stems({lesion: neighbours[lesion] for lesion in neighbours if lesion != "neutral"})
        self.read_sentence = lru_cache(maxsize=1 << 16)(self._read_sentence)

    def find_denials(self, words: Sequence[str]) -> list[Denied]:
        """Return the denials in a sentence that the grammar can parse. ``words``: the sentence's tokens."""
        denials = [denial for start, end in _clauses(words) for denial in self._read_resolved(words, start, end)]
        lead = self._leads.match(words, 0)
        at = lead[0] if lead is not None else 0
        if self._is_guarded(words, at):
            return denials
        list_end = at
        while at < len(words):
            negator = self._negators.match(words, at)
            if negator is None or not (at == list_end or self._has_lead(words, at)):
                at += 1
                continue
            end = negator[0]
            items, at = self._read_list(words, end)
            denials += items
            at = list_end = max(at, end)
        denials += [Denied(*span, HEART) for span in self._find_normal_hearts(words)]
        return denials

    def _is_guarded(self, words: Sequence[str], at: int) -> bool:
        """Return whether a word at or after token ``at`` weakens the denial, as a hedge or a comparison does."""
        if self._guards.isdisjoint(words):
            return False
        while at < len(words):
            phrase = self._harmless.match(words, at) or self._negators.match(words, at)
            if phrase is None and words[at] in self._guards:
                return True
            at = phrase[0] if phrase is not None else at + 1
        return False

    def _find_normal_hearts(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the tokens [start, end) of each clause that only states a normal heart ("heart is not enlarged")."""
        for start, end in _clauses(words, (";", ".", ",", "and", "but")):
            at = start
            while at < end and (words[at] in self._heart_words or words[at] in _HEART_PARTS):
                at += 1
            subject_end = at
            while at < end and words[at] in ("is", "are", "remains", "appears"):
                at += 1
            state = self._heart_normal.match(words, at)
            if subject_end == start or state is None:
                continue
            at, _ = self._tails.match(words, state[0]) or state
            if self._heart_sizes.isdisjoint(words[at : at + 4]) and (at >= end or self._ends.match(words, at)):
                yield start, at

    def _has_lead(self, words: Sequence[str], at: int) -> bool:
        """Return whether the denying word at token ``at`` is where a denial can start. Most denying words must open the
        sentence or a clause. Some, such as "without", may be anywhere."""
        if words[at] in ("do", "does", "fail", "fails", "i", "neg", "negative"):
            return True
        if at > 0 and words[at - 1] in ("not", "never", "hardly"):
            return False
        if words[at] in ("free", "clear", "devoid"):
            return at > 0 and any(word in ("lung", "lungs", "clear", "fields", "chest") for word in words[:at])
        if words[at] == "without":
            return True
        return at == 0 or any(tuple(words[max(0, at - n) : at]) in self._boundaries for n in (1, 2, 3, 4))

    def _read_list(self, words: Sequence[str], at: int) -> tuple[list[Denied], int]:
        """Parse the list of denied findings that starts at token ``at``. Return its denials and the index of the token
        at which parsing stops. An item before an unknown word is dropped, together with the items that "or" joins to
        it. A comma ends the list if the next item cannot be parsed."""
        accepted: list[Denied] = []
        group: list[Denied] = []  # items since the last comma: accepted or dropped together
        after = ""
        while True:
            item = self._read_item(words, at)
            if item is None:
                # in "no effusion, mild edema", the comma ends the list; after "or", the whole group is dropped
                return (accepted + group if after in (",", "and") else accepted), at
            noun, end = item
            if after in (",", "and") and noun.has_place:  # "no pneumothorax, left effusion" may affirm the second
                return accepted + group, at
            if link := self._suggests.match(words, end):  # "no opacity to suggest pneumonia" denies both
                suggested = self._read_item(words, link[0])
                if suggested is None:
                    return accepted, end
                group.append(suggested[0])
                end = suggested[1]
            following = words[end] if end < len(words) else "."
            is_end = following == "." or self._ends.match(words, end) is not None
            if after == "and" and not is_end and following not in self._separators:
                return accepted, end
            if after == ",":
                accepted, group = accepted + group, []
            group.append(noun)
            if is_end:
                return accepted + group, end
            if following not in self._separators and list(words[end : end + 2]) != ["such", "as"]:
                return accepted, end
            if following == "such":
                end += words[end + 1 : end + 2] == ["as"]
            at, after = end + 1, following
            if after == "," and at < len(words) and words[at] in ("or", "nor", "and"):
                at, after = at + 1, "," if words[at] == "and" else "or"
                at += 2 if list(words[at : at + 2]) in (["is", "there"], ["are", "there"]) else 0
            while at < len(words) and words[at] in ("/", "or", "of") and after in ("and", "/"):
                at += 1

    def _read_item(self, words: Sequence[str], at: int) -> tuple[Denied, int] | None:
        """Parse one list item: modifiers, locations, a noun, a location and a verb, of which only the noun is required.
        Return the denial and the index of the token after it, or None if there is no such item at token ``at``."""
        has_place = is_degree = False
        start = at
        while (noun := self._nouns.match(words, at)) is None:
            if modifier := self._modifiers.match(words, at):
                at = modifier[0]
                if words[at : at + 1] in (["or"], ["/"]) and self._modifiers.match(words, at + 1):
                    at += 1  # "interstitial or alveolar edema"
            elif degree := self._degrees.match(words, at):
                at, is_degree = degree[0], True
            elif place := self._places.match(words, at):
                at, has_place = place[0], True
            else:
                return None
        end, lesion = noun
        if further := self._nouns.match(words, end):  # "airspace disease": two listed nouns form one
            if lesion is not None and further[1] is not None and further[1] != lesion:
                return None
            end, lesion = further[0], lesion or further[1]
        end, is_placed = self._skip_place(words, end)
        while end < len(words) and words[end] in _VERBS:
            end += 1
        if end < len(words) and words[end] in self._verbs:
            while end < len(words) and words[end] in self._verbs:
                end += 1
            end, is_placed = self._skip_place(words, end, is_placed)
        if tail := self._tails.match(words, end):
            end = tail[0]
        has_place |= is_placed
        return Denied(start, end, lesion if isinstance(lesion, str) and not is_degree else None, has_place), end

    def _skip_place(self, words: Sequence[str], at: int, has_place: bool = False) -> tuple[int, bool]:
        """Return (index of the token after the location at token ``at``, True). A location is a phrase such as "in the
        left lung". If there is none at ``at``, return (``at``, ``has_place``)."""
        end = at
        while end < len(words) and words[end] in ("in", "at", "of", "on", "within", "the", "over"):
            end += 1
        place = self._places.match(words, end)
        if place is None:
            return at, has_place
        while place is not None:
            end = place[0]
            place = self._places.match(words, end)
        return end, True

    def _read_resolved(self, words: Sequence[str], start: int, end: int) -> list[Denied]:
        """Return the denials of a clause that only states "X has resolved" or "X and Y are not seen". ``start`` and
        ``end`` are the clause's tokens [start, end). Any other clause has no denials."""
        clause = words[:end]
        at = start
        while at < end and clause[at] in self._before_resolved:
            at += 1
        items: list[Denied] = []
        while item := self._read_item(clause, at):
            items.append(item[0])
            at = item[1]
            while at > items[-1].end and clause[at - 1] in _VERBS:
                at -= 1
            if at >= end or clause[at] not in ("or", "and", ","):
                break
            at += 1
        state = self._resolved.match(clause, at) if items else None
        at = state[0] if state is not None else start
        if tail := self._resolved_tails.match(clause, at):
            at = tail[0]
        return items if state is not None and at == end else []

    def is_finding(self, phrase: str) -> bool:
        """Return whether a phrase consists of one known finding and, optionally, locations and modifiers."""
        words = [word for word, _, _ in self._lexicon.tokens(phrase)]
        item = self._read_item(words, 0)
        return item is not None and item[1] == len(words)

    def find_ends(self, text: str) -> list[int]:
        """Return, for each mention of a lesion type in a text, the position of the character after it."""
        tokens = self._lexicon.tokens(text)
        return [tokens[end - 1][2] for _, end, _ in self.find_mentions([word for word, _, _ in tokens])]

    def is_place(self, phrase: str) -> bool:
        """Return whether a phrase consists only of location words."""
        words, at = [word for word, _, _ in self._lexicon.tokens(phrase)], 0
        while place := self._places.match(words, at):
            at = place[0]
        return bool(words) and at == len(words)

    def find_mentions(self, words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, lesion type) of each mention of a lesion type, in tokens [start, end)."""
        at = 0
        while at < len(words):
            end, lesion = self._mentions.match(words, at) or (at + 1, None)
            if lesion:
                yield at, end, lesion
            at = end

    def read(self, sections: Sequence[Sequence[str]], tuples: Sequence[Sequence[dict]]) -> dict[str, Witness]:
        """Return {lesion type: evidence about this type in the report}. ``sections`` has the sentences of each section.
        The first is the section from which findings are read. ``tuples`` has the rules engine's finding tuples of each
        section, in the same order."""
        witnesses = {lesion: Witness() for lesion in LESIONS}
        uncovered: set[str] = set()  # types with a mention that is neither a parsed denial nor an affirmation
        broken: dict[str, dict[str, str]] = {lesion: {} for lesion in LESIONS}  # type -> side -> term
        has_edema = False
        for number, (sentences, section_tuples) in enumerate(zip(sections, tuples, strict=True)):
            affirmed: dict[int, set[str]] = {}
            for item in section_tuples:
                if item["presence"] == "positive":
                    affirmed.setdefault(item["sentence_index"], set()).update(_types_of(item))
            has_edema |= any("edema" in types for types in affirmed.values())
            for index, sentence in enumerate(sentences, start=1):
                reading = self.read_sentence(sentence)
                for lesion in reading.denied:
                    witnesses[lesion].quotes.append((number, sentence))
                for lesion in reading.mentioned:
                    witnesses[lesion].is_mentioned = True
                uncovered |= reading.uncovered - affirmed.get(index, set())
                for lesion, side, term in reading.neighbours:
                    broken[lesion].setdefault(side, term)
                if reading.is_wide:
                    for lesion in affirmed.get(index, ()):
                        witnesses[lesion].elsewhere = False
        if has_edema:
            witnesses["edema"].elsewhere = witnesses["opacity"].elsewhere = False
        denied_by_engine = {
            item["lesion_type"]
            for item in tuples[0]
            if item["presence"] == "negative" and item["certainty"] == "definitive" and item["denies"]
        }
        for lesion, witness in witnesses.items():
            if lesion in uncovered or lesion not in denied_by_engine:
                witness.quotes = []
            witness.neighbour = next(iter(broken[lesion].values()), None)
            witness.silent = [side for side in SIDES if side not in broken[lesion]]
        return witnesses

    def _read_sentence(self, sentence: str) -> Sentence:
        tokens = self._lexicon.tokens(sentence)
        words = [word for word, _, _ in tokens]
        denials = self.find_denials(words)
        covered = {token for denial in denials for token in range(denial.start, denial.end)}
        mentions = list(self.find_mentions(words))
        broken: dict[str, dict[str, str]] = {lesion: {} for lesion in LESIONS}
        self._find_neighbours(words, [sentence[start:end].lower() for _, start, end in tokens], covered, broken)
        if not self._heart_is_normal(words, covered):
            broken[HEART] = dict.fromkeys(SIDES, next(word for word in words if word in self._heart_words))
        return Sentence(
            denied=tuple(dict.fromkeys(denial.lesion for denial in denials if denial.lesion)),
            mentioned=frozenset(lesion for _, _, lesion in mentions),
            uncovered=frozenset(
                lesion
                for start, _, lesion in mentions
                if not any(item.lesion == lesion and item.start <= start < item.end for item in denials)
            ),
            neighbours=tuple((lesion, side, term) for lesion in LESIONS for side, term in broken[lesion].items()),
            is_wide=any(self._wide.match(words, at) for at in range(len(words))),
        )

    def _find_neighbours(
        self, words: Sequence[str], written: Sequence[str], covered: set[int], broken: dict[str, dict[str, str]]
    ) -> None:
        """Add a sentence's neighbouring terms, such as "blunting", to ``broken``, which is {lesion type: {side: term}}.
        Terms in denials (tokens ``covered``), in neutral phrases and in descriptions of a normal state are ignored.
        ``written`` is the original text of each word ("ards" for "acute respiratory distress syndrome")."""
        for at, term, lesions in chain(self._stems.find(words), self._stems.find(written)):
            if at in covered or self._is_normal(words, at) or self._is_neutral(words, at):
                continue
            sides = {side for word in words for side in self._sides.get(word, ())}
            for lesion in lesions:
                for side in sides if len(sides) == 1 else SIDES:
                    broken[lesion].setdefault(side, term)

    def _is_neutral(self, words: Sequence[str], at: int) -> bool:
        """Return whether a token is part of a neutral phrase such as "no change" or "degenerative changes"."""
        phrases = (self._neutral.match(words, start) for start in range(max(0, at - 3), at + 1))
        return any(phrase is not None and phrase[0] > at for phrase in phrases)

    def _is_normal(self, words: Sequence[str], at: int) -> bool:
        """Return whether the clause of token ``at`` describes a normal state ("the costophrenic angles are sharp")."""
        return any(
            self._calls_normal(words[start:end])
            for marks in (_CLAUSE_ENDS, (*_CLAUSE_ENDS, "and"))
            for start, end in _clauses(words, marks)
            if start <= at < end
        )

    def _calls_normal(self, clause: Sequence[str]) -> bool:
        words = set(clause)
        return not words.isdisjoint(_NORMAL) and self._guards.isdisjoint(words) and words.isdisjoint(_ABNORMAL)

    def _is_landmark(self, words: Sequence[str], at: int) -> bool:
        """Return whether the heart word at token ``at`` is only a landmark ("behind the heart", "heart border")."""
        leads = filter(None, (self._landmarks.match(words, start) for start in range(max(0, at - 3), at)))
        is_placed = any(end == at for end, _ in leads) or not self._heart_edges.isdisjoint(words[at + 1 : at + 2])
        return self._heart_abnormal.isdisjoint(words) and is_placed

    def _heart_is_normal(self, words: Sequence[str], covered: set[int]) -> bool:
        """Return whether each heart word is in a denial (tokens ``covered``), called normal or only a landmark."""
        is_normal = self._calls_normal(words) and self._heart_abnormal.isdisjoint(words)
        return all(
            at in covered
            or (self._is_normal(words, at) and self._heart_sizes.isdisjoint(words))
            or is_normal
            or self._is_landmark(words, at)
            or (at > 0 and words[at - 1].replace(".", "").isdigit())
            for at, word in enumerate(words)
            if word in self._heart_words
        )


def _clauses(words: Sequence[str], marks: Sequence[str] = (";", ".")) -> Iterator[tuple[int, int]]:
    """Yield the tokens [start, end) of the clauses that ``marks`` separate."""
    start = 0
    for at, word in enumerate([*words, "."]):
        if word in marks:
            yield start, at
            start = at + 1


class _Stems:
    """An index of neighbouring terms (words such as "blunting" for an effusion). ``terms`` is {lesion type: terms}."""

    def __init__(self, terms: dict[str, list]):
        short_words: dict[str, set[str]] = {}
        stems: dict[str, set[str]] = {}
        phrases: dict[str, set[str]] = {}
        for lesion, words in terms.items():
            for word in map(str, words):
                by_term = phrases if " " in word else short_words if len(word) <= _WHOLE_WORD else stems
                by_term.setdefault(word, set()).add(lesion)
        self._phrases = _Phrases(dict(phrases))
        self._lesions = lru_cache(maxsize=50_000)(
            lambda word: frozenset(short_words.get(word, set())).union(
                *(lesions for stem, lesions in stems.items() if word.startswith(stem))
            )
        )

    def find(self, words: Sequence[str]) -> Iterator[tuple[int, str, Iterable[str]]]:
        """Yield (token index, term, lesion types) of each neighbouring term in a sentence."""
        for at, word in enumerate(words):
            if lesions := self._lesions(word):
                yield at, word, lesions
            if phrase := self._phrases.match(words, at):
                yield at, " ".join(words[at : phrase[0]]), phrase[1]


def _types_of(item: dict) -> set[str]:
    return {item["lesion_type"], item["predicted_lesion_type"], *item["candidates"]}.intersection(LESIONS)


def _phrases(phrases: Iterable[object]) -> _Phrases:
    return _Phrases({" ".join(str(phrase).split()): None for phrase in phrases if str(phrase).strip()})


@cache
def load_second_reader() -> SecondReader:
    """Load the second reader, once per process."""
    return SecondReader()


def digest_words() -> str:
    """Return a digest of the second reader's word lists, in 16 hexadecimal digits."""
    contents = b"".join((RESOURCES / name).read_bytes() for name in RESOURCE_FILES)
    return hashlib.blake2b(contents, digest_size=8).hexdigest()
