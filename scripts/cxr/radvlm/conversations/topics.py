"""Subjects that the engine ``rules`` can ask about: findings, denials, and sentences about organs and devices."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cxr.instructions.record import Box
from cxr.language.reports.devices import normalize_words
from cxr.radvlm import statements
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.conversations.wordings import Noun, Wordings, load_wordings
from cxr.radvlm.labels import finding_labels, load_label_names
from cxr.radvlm.samples import join_in_words
from cxr.radvlm.statements import CACHE_SIZE, Statement

HEDGE_WORDS = ("", "probable", "possible")
ENLARGED_HEART = "cardiomegaly"
MAX_WORDS = 25  # maximum length of a sentence about an organ, in words
_CLAUSE_END = re.compile(r"[,;:.]| and | but (?!within)| with ")
_DOUBTFUL = re.compile(r"\b(?:normal(?! to)|unremarkable|crowd\w*|xxxx)\b|__")
"""Words whose clause gives no topic: they call a finding normal, explain it by crowding, or stand for removed words."""
_PLAIN = re.compile(
    r"\b(?:no|not|without|(?<!__ of )(?<!XXXX of )normal|clear|intact|unremarkable|limits|negative|free|preserved"
    r"|midline|lung volumes)\b", re.IGNORECASE,
)  # fmt: skip
"""Words of sentences without findings. A sentence with neither such a word nor a known finding may state another."""
_HIDDEN = re.compile(r"\bXXXX\b|__")
_HEART_SIZE = re.compile(r"\b(?:size|silhouette)\b|heart is normal")
CAUSES = (
    ("that represents", "that most likely represents", "that may represent"),
    ("that represent", "that most likely represent", "that may represent"),
)
"""Phrases between a finding (singular, plural) and its interpretation, for each degree of certainty."""


@dataclass(frozen=True)
class Topic:
    """A finding that the facts affirm, and the words that describe it."""

    statement: Statement
    noun: str  # name of the finding
    is_plural: bool = False
    is_mass: bool = False  # whether the noun takes no article
    size: str = ""  # adjective of size
    place: str = ""  # location, such as "at the left base"
    adjective: str = ""  # side as an adjective, such as "left"
    cause: str = ""  # interpretation of the finding, such as "pneumonia"
    cause_hedge: int = 0  # certainty of the interpretation: 0 definite, 1 likely, 2 possible
    sentence: str = ""  # sentence that states the finding
    boxes: tuple[Box, ...] = ()
    mask_id: str = ""
    facts: tuple[str, ...] = ()  # ids of the facts that support it

    @property
    def hedge(self) -> int:
        return self.statement.hedge

    @property
    def has_place(self) -> bool:
        return bool(self.place or self.adjective)

    @property
    def location(self) -> str:
        """The place, or "" if it does not answer "where?", as in "calcification of the aorta"."""
        return "" if self.place.startswith("of ") else self.place

    def describe(
        self, *, size: bool = True, place: bool = True, cause: bool = False, article: str = "a", sure: bool = False
    ) -> str:
        """Return a noun phrase with the chosen parts ("a small effusion at the left base"). ``sure``: no "probable"."""
        words = ["" if sure else HEDGE_WORDS[self.hedge], self.size if size else "", self.adjective if place else ""]
        words += [self.noun, self.place if place and not self.adjective else ""]
        words += [CAUSES[self.is_plural][self.cause_hedge], self.cause] if cause and self.cause else []
        text = " ".join(filter(None, words))
        if article == "the":
            return f"the {text}"
        return text if self.is_mass or self.is_plural else with_article(text)


@dataclass(frozen=True)
class Denial:
    """A finding that the facts deny."""

    statement: Statement
    noun: str  # its name, with a word that limits the denial ("large pleural effusion")
    is_mass: bool
    facts: tuple[str, ...] = ()  # ids of the facts that support the denial


@dataclass(frozen=True)
class Subjects:
    """The subjects that a conversation about an image can have."""

    topics: tuple[Topic, ...]
    denials: tuple[Denial, ...]
    organs: Mapping[str, tuple[str, tuple[str, ...]]]  # {organ: (sentence, fact ids)}
    devices: tuple[tuple[str, tuple[str, ...]], ...]  # (sentence, fact ids) of each sentence
    heart: str  # normal, not_enlarged, or "" if unknown or not normal
    heart_facts: tuple[str, ...]
    has_unnamed: bool = False  # whether a sentence states, or may state, a finding that is no topic


def with_article(text: str) -> str:
    """Return a noun phrase with "a" or "an" before it."""
    return f"{'an' if text[:1].lower() in 'aeiou' else 'a'} {text}"


def collect_subjects(facts: ImageFacts, parsed: Sequence[Statement], words: Wordings) -> Subjects:
    """Return the subjects of an image. ``parsed``: statements of its sentences."""
    numbers = list(facts.sentences)
    numbered = [statement.with_number(numbers[statement.sentence - 1]) for statement in parsed]
    topics = _topics(facts, numbered, words)
    affirmed = [statement for statement in numbered if statement.affirmed] + [topic.statement for topic in topics]
    denials = _denials(facts, numbered, affirmed, words)
    stating = {statement.sentence for statement in numbered}
    affirming = {statement.sentence for statement in numbered if statement.affirmed}
    ids_by_number = {number: (f"{facts.study_id}#{number}",) for number in facts.sentences}
    devices: dict[str, tuple[str, ...]] = {}
    for number, text in reversed(facts.sentences.items()):
        has_device, *_ = _read_content(text)
        if number not in affirming and has_device:
            devices[text] = ids_by_number[number]
    organs: dict[str, tuple[str, tuple[str, ...]]] = {}
    for number, text in facts.sentences.items():
        _, organ, _ = _read_content(text)
        if organ and number not in stating and text not in devices:
            organs.setdefault(organ, (text, ids_by_number[number]))
    has_unnamed = any(
        _is_topic(statement) and (statement.entity not in words.nouns or _is_doubtful(statement, facts))
        for statement in numbered
    ) or any(
        number not in stating and not has_device and not _PLAIN.search(text)
        for number, text in facts.sentences.items()
        for has_device, *_ in (_read_content(text),)
    )
    heart = _heart(facts, affirmed, denials)
    return Subjects(topics, denials, organs, tuple(devices.items())[::-1], *heart, has_unnamed)


def _topics(facts: ImageFacts, parsed: Sequence[Statement], words: Wordings) -> tuple[Topic, ...]:
    """Return the findings that phrases or sentences affirm. Omit those of the same name and place as an earlier one."""
    by_sentence: dict[int, list[Statement]] = {}
    for statement in parsed:
        by_sentence.setdefault(statement.sentence, []).append(statement)
    numbers = {normalize_words(text): number for number, text in facts.sentences.items()} if facts.phrases else {}
    mentions: list[tuple] = []
    for phrase in facts.phrases:
        number = numbers.get(normalize_words(phrase.text))
        same_sentence = by_sentence.get(number, []) if number else statements.read_phrase(phrase.text)
        ids = phrase.facts + ((f"{facts.study_id}#{number}",) if number else ())
        for main_statement in list(filter(_is_topic, same_sentence))[:1]:
            mentions.append((main_statement, same_sentence, phrase.text, ids, phrase.boxes))
    for statement in filter(_is_topic, parsed):
        if _is_doubtful(statement, facts):
            continue
        number = statement.sentence
        ids = (f"{facts.study_id}#{number}",)
        mentions.append((statement, by_sentence[number], facts.sentences[number], ids, ()))
    topic_by_key: dict[tuple, Topic] = {}
    for statement, same_sentence, text, ids, boxes in mentions:
        topic = _topic(statement, same_sentence, text, facts, words)
        key = statement.lesion or statement.entity, tuple(sorted(statement.sides)), tuple(sorted(statement.zones))
        if topic is not None:
            topic_by_key.setdefault(key, replace(topic, boxes=boxes, facts=topic.facts + ids))
    topics: list[Topic] = []
    for topic in topic_by_key.values():
        if not any(
            (earlier.noun == topic.noun or earlier.statement.keys & topic.statement.keys)
            and not (earlier.place and topic.place and earlier.place != topic.place)
            for earlier in topics
        ):
            topics.append(topic)
    return tuple(topics)


def _is_topic(statement: Statement) -> bool:
    return statement.affirmed and not statement.explains


def _is_doubtful(statement: Statement, facts: ImageFacts) -> bool:
    text = facts.sentences.get(statement.sentence, "").lower()
    start, end = statement.span
    clause = _CLAUSE_END.split(text[:start])[-1] + text[start:end] + _CLAUSE_END.split(text[end:])[0]
    return _DOUBTFUL.search(clause) is not None


def _topic(
    statement: Statement, same_sentence: Sequence[Statement], text: str, facts: ImageFacts, words: Wordings
) -> Topic | None:
    """Return the topic of a statement, with the fact id of its label. Return None if its finding has no noun."""
    noun = words.nouns.get(statement.entity)
    if noun is None:
        return None
    many = bool(noun.plural) and (len(statement.sides) == 2 or text[slice(*statement.span)].lower().endswith("s"))
    place = _place(statement, words)
    side = next(iter(statement.sides)) if len(statement.sides) == 1 else "bilateral" if statement.sides else ""
    adjective = side if place in (f"on the {side}", "on both sides") and statement.entity != "fracture" else ""
    candidates = (candidate for candidate in same_sentence if candidate.explains == statement.entity)
    cause = next((candidate for candidate in candidates if candidate.span == statement.span), None)
    cause_noun = words.nouns.get(cause.entity, Noun("")) if cause is not None else Noun("")
    cause_text = with_article(cause_noun.singular) if cause_noun.plural else cause_noun.singular
    label = next(iter(sorted(finding_labels(statement.lesion, statement.entity) & set(facts.present))), None)
    return Topic(
        statement, noun.plural if many else noun.singular, many, not noun.plural, _size(statement, text, words), place,
        adjective, cause_text, cause.hedge if cause is not None else 0, text,
        mask_id=facts.masks.get(statement.lesion or "", facts.masks.get(cause.lesion or "", "") if cause else ""),
        facts=(facts.ids[label],) if label in facts.ids else (),
    )  # fmt: skip


def _size(statement: Statement, text: str, words: Wordings) -> str:
    """Return the adjective of a finding's size, such as "small", or "" if the sentence has none or several."""
    if len(statement.sizes) != 1:
        return ""
    sizes = statements.load_patterns().sizes
    fitting = (word for word in re.findall(r"[a-z]+", text.lower()) if sizes.get(word) in statement.sizes)
    adjectives = {words.sizes[word] for word in fitting if word in words.sizes}
    return adjectives.pop() if len(adjectives) == 1 else ""


def _place(statement: Statement, words: Wordings) -> str:
    if not statement.place or set(statement.place) <= set(words.bare.get(statement.entity, ())):
        return ""
    place_phrases = [words.place(text) for text in statement.place]
    if not all(place_phrases):
        return ""
    if statement.entity == "pleural effusion" and statement.sides:
        return "on both sides" if len(statement.sides) == 2 else f"on the {next(iter(statement.sides))}"
    if len(place_phrases) == 2 and len(statement.sides) < 2:  # "in the right upper zone and the right upper lobe"
        return place_phrases[-1]
    return join_in_words(place_phrases) if len(place_phrases) < 3 else ""


def _denials(
    facts: ImageFacts, parsed: Sequence[Statement], affirmed: Sequence[Statement], words: Wordings
) -> tuple[Denial, ...]:
    denial_by_text: dict[str, Denial] = {}
    affirmed_keys = frozenset().union(*(statement.keys for statement in affirmed))
    for statement in parsed:
        noun = words.nouns.get(statement.entity)
        is_denial = statement.denies and not statement.affirmed and not statement.has_place
        if not is_denial or noun is None or statement.keys & affirmed_keys:
            continue
        text = " ".join((*statement.limits[-1:], noun.singular))
        ids = (f"{facts.study_id}#{statement.sentence}",)
        if text not in denial_by_text or statement.limits < denial_by_text[text].statement.limits:
            denial_by_text[text] = Denial(statement, text, not noun.plural, ids)
    denied_keys = {key for denial in denial_by_text.values() for key in denial.statement.keys}
    label_names = load_label_names()
    for label in facts.absent:
        entity = next((name for name, labels in label_names.entities.items() if labels == (label,)), None)
        lesion = next((name for name, labels in label_names.lesions.items() if labels == (label,)), None)
        entity = {"effusion": "pleural effusion"}.get(lesion or "", lesion) or entity
        if entity is None or entity not in words.nouns or lesion == "opacity" or label == "Lung Lesion":
            continue
        statement = Statement(entity, lesion, affirmed=False)
        if not statement.keys & (denied_keys | affirmed_keys):
            noun = words.nouns[entity]
            ids = (facts.ids[label],) if label in facts.ids else ()
            denial_by_text[noun.singular] = Denial(statement, noun.singular, not noun.plural, ids)
    return tuple(
        denial
        for text, denial in denial_by_text.items()
        if not (denial.statement.limits and text.split(" ", 1)[1] in denial_by_text)
    )


@lru_cache(maxsize=CACHE_SIZE)
def _read_content(text: str) -> tuple[bool, str, bool]:
    """Return (whether a sentence names a device, organ of the sentence or "", whether it calls heart size normal)."""
    low = text.lower()
    view = any(pattern.search(low) for pattern in statements.load_patterns().views.values())
    organs = () if view or len(text.split()) > MAX_WORDS else load_wordings().organs.items()
    return (
        not view and load_label_names().words.are_stated_in([text]),
        next((organ for organ, pattern in organs if pattern.search(text)), ""),
        bool(statements.load_patterns().normal["heart"].search(low) and _HEART_SIZE.search(low)),
    )


def _heart(facts: ImageFacts, affirmed: Sequence[Statement], denials: Sequence[Denial]) -> tuple[str, tuple[str, ...]]:
    borderline = ("borderline heart size", "top normal heart size")
    if any(ENLARGED_HEART in statement.keys or statement.entity in borderline for statement in affirmed):
        return "", ()
    for number, text in facts.sentences.items():
        *_, is_normal = _read_content(text)
        if is_normal and not _HIDDEN.search(text):
            return "normal", (f"{facts.study_id}#{number}",)
    heart_denials = (denial for denial in denials if ENLARGED_HEART in denial.statement.keys)
    return next((("not_enlarged", denial.facts) for denial in heart_denials), ("", ()))


def lower_first(sentence: str) -> str:
    """Return a sentence with a lower-case first letter, unless its first word is an acronym."""
    first = sentence.split(" ", 1)[0]
    return sentence if len(first) > 1 and first[1:2].isupper() else sentence[:1].lower() + sentence[1:]
