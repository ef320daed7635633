"""What the engine rules can talk about: the findings, denials and sentences that an image's facts hold."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from cxr.instructions.record import Box
from cxr.language.reports.devices import plain
from cxr.radvlm import statements
from cxr.radvlm.conversations.facts import ImageFacts, Phrase
from cxr.radvlm.conversations.wordings import Wordings, capital, wordings
from cxr.radvlm.labels import names
from cxr.radvlm.statements import CACHED, Statement

HEDGED = ("", "probable ", "possible ")
HEART = "cardiomegaly"
LONGEST = 25
"""Most words of a sentence that tells of an organ."""
_HEART_SIZE = re.compile(r"\b(?:size|silhouette)\b|heart is normal")
CAUSES = (
    ("that represents", "that most likely represents", "that may represent"),
    ("that represent", "that most likely represent", "that may represent"),
)
"""What links one finding, or many, to what it stands for, by how surely."""


@dataclass(frozen=True)
class Topic:
    """A finding that the facts affirm.

    noun: its name, with ``many`` of it or not, ``mass`` if it takes no article; size: an adjective; place: "at the left
    base", and its sides; cause: what it may stand for, and how surely; said: its sentence; boxes; mask_id; facts: ids.
    """

    one: Statement
    noun: str
    many: bool = False
    mass: bool = False
    size: str = ""
    place: str = ""
    adjective: str = ""
    cause: str = ""
    cause_hedge: int = 0
    said: str = ""
    boxes: tuple[Box, ...] = ()
    mask_id: str = ""
    facts: tuple[str, ...] = ()

    @property
    def hedge(self) -> int:
        return self.one.hedge

    @property
    def sides(self) -> frozenset[str]:
        return self.one.sides

    @property
    def placed(self) -> bool:
        return bool(self.place or self.adjective)

    def called(
        self, *, size: bool = True, place: bool = True, cause: bool = False, article: str = "a", sure: bool = False
    ) -> str:
        """Return the finding's noun with what is asked for: "a probable small effusion at the left base".

        ``sure``: without its doubt.
        """
        words = ("" if sure else HEDGED[self.hedge]) + (f"{self.size} " if size and self.size else "")
        words += f"{self.adjective} " if place and self.adjective else ""
        text = f"{words}{self.noun}" + (f" {self.place}" if place and self.place and not self.adjective else "")
        if cause and self.cause:
            text += f" {CAUSES[self.many][self.cause_hedge]} {self.cause}"
        if article == "the":
            return f"the {text}"
        return text if self.mass or self.many else with_article(text)


@dataclass(frozen=True)
class Denial:
    """A finding that the facts deny: its name, as limited as its source ("large pleural effusion"); facts: ids."""

    one: Statement
    noun: str
    mass: bool
    facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subjects:
    """All that can be talked about. organs: {organ: (sentence, facts)}; devices: sentences; heart: how its size is told
    where no finding tells it: normal, not_enlarged, or ""; untold: a finding is affirmed that has no noun.
    """

    topics: tuple[Topic, ...]
    denials: tuple[Denial, ...]
    organs: Mapping[str, tuple[str, tuple[str, ...]]]
    devices: tuple[tuple[str, tuple[str, ...]], ...]
    heart: str
    heart_facts: tuple[str, ...]
    untold: bool = False


def with_article(text: str) -> str:
    """Return a noun phrase with a or an."""
    return f"{'an' if text[:1].lower() in 'aeiou' else 'a'} {text}"


def subjects(facts: ImageFacts, read: Sequence[Statement], words: Wordings) -> Subjects:
    """Return what can be talked about. ``read``: the statements of the image's sentences."""
    numbers = list(facts.sentences)
    numbered = [one.numbered(numbers[one.sentence - 1]) for one in read]
    topics = _topics(facts, numbered, words)
    affirmed = [one for one in numbered if one.affirmed] + [topic.one for topic in topics]
    denials = _denials(facts, numbered, affirmed, words)
    stating = {one.sentence for one in numbered}
    affirming = {one.sentence for one in numbered if one.affirmed}
    devices = tuple(
        (text, (f"{facts.study_id}#{number}",))
        for number, text in facts.sentences.items()
        if number not in affirming and _told(text).device
    )
    told = {text for text, _ in devices}
    organs = _organs(facts, {n: t for n, t in facts.sentences.items() if n not in stating and t not in told})
    once = tuple({text: (text, ids) for text, ids in reversed(devices)}.values())[::-1]
    untold = any(one.affirmed and not one.of and one.entity not in words.nouns for one in numbered)
    return Subjects(topics, denials, organs, once, *_heart(facts, affirmed, denials), untold)


def _topics(facts: ImageFacts, read: Sequence[Statement], words: Wordings) -> tuple[Topic, ...]:
    """Return a topic for each finding that a sentence or a phrase affirms; a phrase's has its boxes."""
    found: dict[tuple, Topic] = {}
    by_text = {plain(text): number for number, text in facts.sentences.items()} if facts.phrases else {}
    for phrase in facts.phrases:
        number = by_text.get(plain(phrase.text))
        own = [one for one in read if one.sentence == number] if number else _of_phrase(phrase)
        for one in [one for one in own if one.affirmed and not one.of][:1]:
            ids = phrase.facts + ((f"{facts.study_id}#{number}",) if number else ())
            made = _topic(one, own, phrase.text, ids, facts, words)
            if made is not None:
                found.setdefault(_key(one), replace(made, boxes=phrase.boxes))
    for one in read:
        if one.affirmed and not one.of:
            own = [other for other in read if other.sentence == one.sentence]
            ids = (f"{facts.study_id}#{one.sentence}",)
            made = _topic(one, own, facts.sentences[one.sentence], ids, facts, words)
            if made is not None:
                found.setdefault(_key(one), made)
    return _apart(list(found.values()))


def _of_phrase(phrase: Phrase) -> list[Statement]:
    return [one for part in statements.split(phrase.text) for one in statements.of_sentence(part)]


def _key(one: Statement) -> tuple:
    return one.lesion or one.entity, tuple(sorted(one.sides)), tuple(sorted(one.zones))


def _apart(topics: list[Topic]) -> tuple[Topic, ...]:
    """Return topics of which no two would be called the same: of one kind at one place, or one without a place, the
    first.
    """
    kept: list[Topic] = []
    for topic in topics:
        same = [other for other in kept if other.noun == topic.noun or other.one.keys & topic.one.keys]
        if all(other.place and topic.place and other.place != topic.place for other in same):
            kept.append(topic)
    return tuple(kept)


def _topic(
    one: Statement, own: Sequence[Statement], said: str, ids: tuple[str, ...], facts: ImageFacts, words: Wordings
) -> Topic | None:
    """Return the topic of a statement; own: those of its sentence; ids: facts that tell it, besides its label."""
    noun = words.nouns.get(one.entity)
    if noun is None:
        return None
    many = bool(noun.many) and (len(one.sides) == 2 or said[slice(*one.span)].lower().endswith("s"))
    place = _place(one, words)
    side = next(iter(one.sides)) if len(one.sides) == 1 else "bilateral" if one.sides else ""
    adjective = side if place in (f"on the {side}", "on both sides") and one.entity != "fracture" else ""
    cause = next((other for other in own if other.of == one.entity and other.span == one.span), None)
    told = words.nouns.get(cause.entity) if cause is not None else None
    label = next(iter(sorted(_labels(one) & set(facts.present))), None)
    return Topic(
        one, noun.many if many else noun.one, many, not noun.many, _size(one, said, words), place, adjective,
        told.one if told is not None and not told.many else with_article(told.one) if told is not None else "",
        cause.hedge if cause is not None else 0, said,
        mask_id=facts.masks.get(one.lesion or "", facts.masks.get(cause.lesion or "", "") if cause else ""),
        facts=((facts.ids[label],) if label in facts.ids else ()) + ids,
    )  # fmt: skip


def _labels(one: Statement) -> set[str]:
    return set(names().lesions.get(one.lesion or "") or names().entities.get(one.entity) or ())


def _size(one: Statement, said: str, words: Wordings) -> str:
    """Return the adjective of a finding's size, where its sentence has exactly one that fits what was read."""
    if len(one.sizes) != 1:
        return ""
    sizes = statements.words().sizes
    told = [
        word for word in re.findall(r"[a-z]+", said.lower()) if sizes.get(word) in one.sizes and word in words.sizes
    ]
    return words.sizes[told[0]] if len({words.sizes[word] for word in told}) == 1 else ""


def _place(one: Statement, words: Wordings) -> str:
    """Return where a finding is; "" where its sentence does not say so in words that are known."""
    if not one.place or set(one.place) <= set(words.bare.get(one.entity, ())):
        return ""
    said = [words.place(text) for text in one.place]
    if not all(said):
        return ""
    if one.entity == "pleural effusion" and one.sides:
        return "on both sides" if len(one.sides) == 2 else f"on the {next(iter(one.sides))}"
    if len(said) == 2 and len(one.sides) < 2:  # "in the right upper zone and the right upper lobe"
        return said[-1]
    return listed(said) if len(said) < 3 else ""


def _denials(
    facts: ImageFacts, read: Sequence[Statement], affirmed: Sequence[Statement], words: Wordings
) -> tuple[Denial, ...]:
    """Return the findings that sentences or labels deny, and that nothing affirms."""
    found: dict[str, Denial] = {}
    hedged = frozenset().union(*(one.keys for one in affirmed))
    for one in read:
        noun = words.nouns.get(one.entity)
        if one.affirmed or not one.denies or noun is None or one.placed or one.keys & hedged:
            continue
        text = " ".join((*one.limits[-1:], noun.one))
        ids = (f"{facts.study_id}#{one.sentence}",)
        if text not in found or one.limits < found[text].one.limits:
            found[text] = Denial(one, text, not noun.many, ids)
    told = {key for denial in found.values() for key in denial.one.keys}
    for label in facts.absent:
        entity = next((name for name, labels in names().entities.items() if labels == [label]), None)
        lesion = next((name for name, labels in names().lesions.items() if labels == [label]), None)
        entity = {"effusion": "pleural effusion"}.get(lesion or "", lesion) or entity
        if entity is None or entity not in words.nouns or lesion == "opacity" or label == "Lung Lesion":
            continue
        one = Statement(entity, lesion, affirmed=False)
        if not one.keys & (told | hedged):
            noun = words.nouns[entity]
            found[noun.one] = Denial(one, noun.one, not noun.many, (facts.ids[label],) if label in facts.ids else ())
    limited = [text for text, one in found.items() if one.one.limits and text.split(" ", 1)[1] in found]
    return tuple(one for text, one in found.items() if text not in limited)


def _organs(facts: ImageFacts, sentences: Mapping[int, str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for number, text in sentences.items():
        if organ := _told(text).organ:
            found.setdefault(organ, (text, (f"{facts.study_id}#{number}",)))
    return found


class _Told(NamedTuple):
    """What the words of a sentence tell: a device, an organ ("" for none), that the heart's size is normal."""

    device: bool
    organ: str
    heart: bool


@lru_cache(maxsize=CACHED)
def _told(text: str) -> _Told:
    low = text.lower()
    view = any(pattern.search(low) for pattern in statements.words().views.values())
    organs = () if view or len(text.split()) > LONGEST else wordings().organs.items()
    return _Told(
        not view and names().words.told_in([text]),
        next((organ for organ, pattern in organs if pattern.search(text)), ""),
        bool(statements.words().normal["heart"].search(low) and _HEART_SIZE.search(low)),
    )


def _heart(facts: ImageFacts, affirmed: Sequence[Statement], denials: Sequence[Denial]) -> tuple[str, tuple[str, ...]]:
    if any(HEART in one.keys or one.entity in ("borderline heart size", "top normal heart size") for one in affirmed):
        return "", ()
    for number, text in facts.sentences.items():
        if _told(text).heart:
            return "normal", (f"{facts.study_id}#{number}",)
    return next((("not_enlarged", one.facts) for one in denials if HEART in one.one.keys), ("", ()))


def listed(texts: Iterable[str]) -> str:
    """Return texts as a list in words: "a, b and c"."""
    *first, last = texts
    return f"{', '.join(first)} and {last}" if first else last


def lowered(sentence: str) -> str:
    """Return a sentence to stand after a colon: an acronym keeps its capitals."""
    first = sentence.split(" ", 1)[0]
    return sentence if len(first) > 1 and first[1:2].isupper() else sentence[:1].lower() + sentence[1:]


def upper(sentence: str) -> str:
    """Return a sentence with a capital."""
    return capital(sentence)
