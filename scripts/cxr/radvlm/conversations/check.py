"""The strict check of a conversation: its form, its boxes, and whether the facts support every statement.

The check needs only the text, whichever engine wrote it. The rules engine of the reports reads which findings an answer
affirms and denies. Questions and definitions are not statements. But "yes" and "no" affirm or deny a question's
findings.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from cxr.base.vocabulary import SIDES
from cxr.language.reports.devices import normalize_words
from cxr.radvlm import statements
from cxr.radvlm.conversations.engine import BOX, ROUNDS, Fault, parse_boxes, round_box
from cxr.radvlm.conversations.facts import ImageFacts
from cxr.radvlm.conversations.wordings import capitalize
from cxr.radvlm.labels import finding_labels, load_label_names
from cxr.radvlm.statements import CACHE_SIZE, Statement

USER, ASSISTANT = ROLES = ("user", "assistant")
BAD_FORM, FOREIGN_BOX, UNGROUNDED, UNSUPPORTED = "bad_form", "foreign_box", "ungrounded", "unsupported_statement"
COMPARISON, DATE_OR_NAME, ORDER = "comparison", "date_or_name", "order_to_reader"
REASONS = (BAD_FORM, FOREIGN_BOX, UNGROUNDED, UNSUPPORTED, COMPARISON, DATE_OR_NAME, ORDER)
AFFIRMS_DEVICE, DENIES_DEVICE = "affirms a device that no fact affirms", "denies a device that a fact affirms"
MAX_CHARACTERS = 2000  # maximum length of a question or an answer, in characters
STEM_LETTERS = 5  # a comparison word is allowed if a word of the facts has the same first letters
_BRACKET = re.compile(r"\[(?!SEG\])[^\]]*\]?")
_YES = re.compile(r"^(?:yes|yeah|yep|correct|indeed|right|positive)\b", re.IGNORECASE)
_NO = re.compile(r"^(?:no|nope|none|negative|not|neither)\b(?! (?:\w+ )*(?:but|than|more))", re.IGNORECASE)
_ALONE = re.compile(r"(?:no|nope|none|negative)\W*$", re.IGNORECASE)
_LEAD = re.compile(
    r"(?:(?:no|yes|correct|indeed)[,:;]|(?:in addition|besides|besides that|to sum up),"
    r"|(?:above all|briefly|in short|my impression|one more thing|only this|to begin with):) ",
    re.IGNORECASE,
)
"""Openings of a sentence that state nothing. They are removed before the sentence is parsed."""
_COMMON = frozenset(("there", "this", "that", "with", "seen", "present", "right", "left", "lung", "lungs", "side"))
_LUNG = frozenset(("opacity", "consolidation", "pneumonia", "atelectasis", "edema"))
_HEART = frozenset(("cardiomegaly",))
_plain = lru_cache(maxsize=CACHE_SIZE)(normalize_words)


@dataclass
class Evidence:
    """What an image's facts prove: statements, and the words and boxes that a conversation may use."""

    facts: ImageFacts
    affirmed: list[Statement]  # affirmed statements of the report and of the phrases
    labels: frozenset[str]  # present labels
    normal: set[tuple[str, str]]  # (structure, side) pairs that a text calls normal
    text: str  # all texts, in lower case
    devices: set[str]  # device words
    boxes: list[tuple[frozenset[str], frozenset[str], frozenset[tuple]]]  # (finding keys, words, boxes) of each phrase

    @property
    def has_device(self) -> bool:
        return bool(self.devices) or load_label_names().device in self.labels


def gather_evidence(facts: ImageFacts, parsed: Sequence[Statement] | None = None) -> Evidence:
    """Return what the facts of an image prove. ``parsed``: the statements of its report, if they were read already."""
    sentences = list(facts.sentences.values())
    fact_statements = list(statements.read_statements(sentences) if parsed is None else parsed)
    boxes = []
    for phrase in facts.phrases:
        phrase_statements = statements.read_phrase(phrase.text)
        fact_statements += phrase_statements
        keys = frozenset().union(*(statement.keys for statement in phrase_statements if statement.affirmed))
        boxes.append((keys, frozenset(_content_words(phrase.text)), frozenset(map(round_box, phrase.boxes))))
    texts = [*sentences, *(phrase.text for phrase in facts.phrases)]
    structures = (structure for text in texts for structure in find_normal_structures(text))
    normal = {(structure, side) for structure, sides, _ in structures for side in sides}
    affirmed = [statement for statement in fact_statements if statement.affirmed]
    devices = set().union(*map(_devices_in, texts))
    return Evidence(facts, affirmed, frozenset(facts.present), normal, " ".join(texts).lower(), devices, boxes)


@lru_cache(maxsize=CACHE_SIZE)
def find_normal_structures(sentence: str) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Return (structure, sides, whether there are exceptions) for each structure that a sentence calls normal.
    Structures are ``lungs``, ``heart`` and ``all``. A word such as "otherwise" means that there are exceptions."""
    words, low = statements.load_patterns(), sentence.lower()
    apart = bool(words.apart.search(low))
    normal_structures = []
    for structure, hit in ((structure, pattern.search(low)) for structure, pattern in words.normal.items()):
        if hit:
            near = low[max(0, hit.start() - 12) : hit.end()]
            sides = tuple(side for side in SIDES if re.search(rf"\b{side}\b", near)) or SIDES
            normal_structures.append((structure, sides, apart))
    return tuple(normal_structures)


def find_fault(messages: Sequence[Mapping[str, str]], evidence: Evidence, grounded: bool) -> Fault | None:
    """Return the first fault of a conversation, or None if it has no fault. ``messages``: dicts {role, text}, in which
    boxes are written to two decimals; ``grounded``: whether an answer needs a box."""
    texts = [message["text"].strip() for message in messages]
    turns = list(zip(texts[::2], texts[1::2], strict=False))
    if [message["role"] for message in messages] != [*ROLES] * len(turns):
        return Fault(BAD_FORM, "roles do not alternate")
    if not ROUNDS[0] <= len(turns) <= ROUNDS[1]:
        return Fault(BAD_FORM, f"{len(turns)} rounds")
    if not all(texts) or max(map(len, texts)) > MAX_CHARACTERS:
        return Fault(BAD_FORM, "a text is empty or too long")
    plain_questions = [_plain(question) for question, _ in turns]
    if len(set(plain_questions)) < len(plain_questions) or not all(plain_questions):
        return Fault(BAD_FORM, "a question is asked twice")
    for number, (question, answer) in enumerate(turns, start=1):
        compared, wording_fault = _forbidden_words(answer)
        if any(not re.search(rf"\b{re.escape(word[:STEM_LETTERS])}", evidence.text) for word in compared):
            wording_fault = Fault(COMPARISON, "a comparison word that is not in the facts")
        box_fault = _box_fault(turns[:number], evidence, grounded)
        if round_fault := box_fault or _statement_fault(question, answer, evidence) or wording_fault:
            return replace(round_fault, detail=f"round {number}: {round_fault.detail}")
    place = statements.load_patterns().patterns["place"]
    if grounded and not any(place.search(question.lower()) and BOX.search(answer) for question, answer in turns):
        return Fault(UNGROUNDED, "no question about a place is answered with a box")
    return None


def _box_fault(turns: Sequence[tuple[str, str]], evidence: Evidence, grounded: bool) -> Fault | None:
    answer = turns[-1][1]
    if "[" not in answer:
        return None
    if not grounded and _BRACKET.search(answer):
        return Fault(FOREIGN_BOX, "a box in a standard conversation")
    if _BRACKET.search(BOX.sub("", answer)):
        return Fault(FOREIGN_BOX, "brackets without a valid box")
    for part in _sentences(answer):
        if "[" not in part:
            continue
        # a box in a sentence without a finding belongs to the finding asked for, or mentioned last
        latest_texts = (part, *reversed([text for turn in turns for text in turn][:-1]))
        finding_keys: frozenset[str] = next(filter(None, map(_mentioned_findings, latest_texts)), frozenset())
        foreign_boxes, part_words = set(parse_boxes(part)), set(_content_words(part))
        for keys, words, boxes in evidence.boxes:
            if not finding_keys or (keys & finding_keys if keys else words & part_words):
                foreign_boxes -= boxes
        if foreign_boxes:
            return Fault(FOREIGN_BOX, "a box that the facts do not give for its finding")
    return None


def _statement_fault(question: str, answer: str, evidence: Evidence) -> Fault | None:
    defines = statements.load_patterns().patterns["meaning"].search(question.lower()) is not None
    all_parts = (_parse_sentence(BOX.sub("", text)) for text in _sentences(answer))
    parts = [part for part in all_parts if part.about_image or not defines]
    answer_statements = [statement for part in parts for statement in part.statements]
    answer_statements += [] if defines else _yes_no_statements(question, answer)
    problems = [_part_problem(part, evidence) for part in parts]
    problems += [support_problem(statement, evidence) for statement in answer_statements]
    says_yes, says_no = _YES.match(answer) and not evidence.has_device, _NO.match(answer) and evidence.devices
    text = _plain(question)
    if (says_yes or says_no) and ("device" in text or load_label_names().words.device.search(text)):
        problems.append(AFFIRMS_DEVICE if says_yes else DENIES_DEVICE)
    return next((Fault(UNSUPPORTED, problem) for problem in problems if problem), None)


class _Part(NamedTuple):
    """A parsed sentence of an answer."""

    about_image: bool  # whether it refers to this image
    statements: tuple[Statement, ...]
    normal: tuple[tuple[str, tuple[str, ...], bool], ...]  # as in find_normal_structures
    devices: frozenset[str]  # device words
    no_devices: bool  # whether it denies all devices
    views: frozenset[str]  # views that it states
    sexes: frozenset[str]  # sexes that it states


@lru_cache(maxsize=CACHE_SIZE)
def _parse_sentence(text: str) -> _Part:
    words, low = statements.load_patterns(), text.lower()
    return _Part(
        about_image=words.patterns["here"].search(low) is not None,
        statements=_parse_statements(text),
        normal=find_normal_structures(text),
        devices=_devices_in(text),
        no_devices=words.patterns["no_devices"].search(low) is not None,
        views=frozenset(name for name, pattern in words.views.items() if pattern.search(low)),
        sexes=frozenset(name for name, pattern in words.sexes.items() if pattern.search(low)),
    )


def support_problem(statement: Statement, evidence: Evidence) -> str | None:
    """Return why the facts do not support a statement, or None. A denial is supported if no fact contradicts it."""
    same = [fact for fact in evidence.affirmed if fact.keys & statement.keys]
    has_label = finding_labels(statement.lesion, statement.entity) & evidence.labels
    if not statement.affirmed:
        for fact in same if statement.denies else ():
            smaller = statement.limits and fact.sizes and not fact.sizes & statement.sizes
            if statement.overlaps(fact) and not smaller:
                return "denies a finding that a fact affirms"
        is_general = statement.denies and not same and not statement.has_place and not statement.limits
        return "denies a label that a fact affirms" if is_general and has_label else None
    if not same:
        return None if has_label and not statement.has_place else "affirms a finding that no fact affirms"
    sure = [fact for fact in same if fact.hedge <= statement.hedge]
    if not sure:
        return "is more certain than its fact"
    if statement.sizes and not any(statement.sizes <= fact.sizes for fact in sure):
        return "states a size that no fact states"
    sides = frozenset().union(*(fact.sides for fact in sure))
    zones = frozenset().union(*(fact.zones for fact in sure))
    if not statement.sides <= sides:
        return "states a side that no fact states"
    for side in statement.sides if zones else ():
        side_zones = {zone for zone in statement.zones if zone.startswith(side)}
        if side_zones and not side_zones & zones:
            return "states a zone that no fact states"
    return None


@lru_cache(maxsize=CACHE_SIZE)
def _sentences(answer: str) -> tuple[str, ...]:
    return tuple(statements.split_sentences(answer)) or (answer,)


@lru_cache(maxsize=CACHE_SIZE)
def _parse_statements(part: str) -> tuple[Statement, ...]:
    """Return the statements of a sentence without its opening, so that "No, it is likely X" does not deny X."""
    if lead := _LEAD.match(part):
        part = capitalize(part[lead.end() :])
    return statements.read_sentence(part)


@lru_cache(maxsize=CACHE_SIZE)
def _mentioned_findings(text: str) -> frozenset[str]:
    parts = [BOX.sub("", part) for part in _sentences(text)]
    keys = frozenset().union(*(statement.keys for part in parts for statement in statements.read_sentence(part)))
    return keys or (_HEART if re.search(r"\bheart\b", text.lower()) else keys)


def _yes_no_statements(question: str, answer: str) -> list[Statement]:
    """Return the statements that the answer "yes" or "no" makes about the findings of a question."""
    says_yes = _YES.match(answer)
    if not says_yes and not _ALONE.match(answer):
        return []
    parsed = (statement for part in _sentences(question) for statement in statements.read_sentence(part))
    asked_statements = [statement for statement in parsed if not statement.explains]
    if not says_yes:
        return [replace(statement, affirmed=False, limits=(), denies=True) for statement in asked_statements]
    answer_statements = [statement for part in _sentences(answer) for statement in _parse_statements(part)]
    keys = frozenset().union(*(statement.keys for statement in answer_statements))
    return [replace(statement, affirmed=True, hedge=0) for statement in asked_statements if not statement.keys & keys]


def _part_problem(part: _Part, evidence: Evidence) -> str | None:
    for structure, sides, apart in part.normal:
        if apart or all((structure, side) in evidence.normal for side in sides):
            continue
        for fact in evidence.affirmed:
            entity = statements.load_lexicon().entities.get(fact.entity)
            is_lung = fact.lesion in _LUNG or (fact.lesion is None and entity is not None and entity.category == "lung")
            concerned = {"lungs": is_lung, "heart": bool(fact.keys & _HEART), "all": True}[structure]
            if concerned and (not fact.sides or fact.sides & set(sides)):
                return "calls a structure normal that has a finding"
        if structure == "all" and evidence.labels - {load_label_names().no_finding, load_label_names().device}:
            return "calls a structure normal that has a finding"
    if part.no_devices and evidence.has_device:
        return DENIES_DEVICE
    if part.devices and not part.no_devices:
        specific_words = part.devices - statements.load_patterns().general_devices
        are_facts = all(any(word in device for device in evidence.devices) for word in specific_words)
        if not are_facts or not evidence.has_device:
            return AFFIRMS_DEVICE
    if part.views - {evidence.facts.view}:
        return "states a view that no fact states"
    return "states a sex that no fact states" if part.sexes - {evidence.facts.sex} else None


@lru_cache(maxsize=CACHE_SIZE)
def _devices_in(text: str) -> frozenset[str]:
    device_words = load_label_names().words
    undenied_text = device_words.denied.sub("", normalize_words(text))
    return frozenset(hit.group().removesuffix("s") for hit in device_words.device.finditer(undenied_text))


@lru_cache(maxsize=CACHE_SIZE)
def _forbidden_words(answer: str) -> tuple[frozenset[str], Fault | None]:
    """Return (comparison words of an answer, fault if it has a date, a name or an order to the reader, else None)."""
    patterns, low = statements.load_patterns().patterns, answer.lower()
    compared = frozenset(hit.group() for hit in patterns["comparison"].finditer(patterns["changes"].sub("", low)))
    if patterns["date"].search(low) or patterns["name"].search(answer):
        return compared, Fault(DATE_OR_NAME, "a date or a name")
    return compared, Fault(ORDER, "an order to the reader") if patterns["order"].search(low) else None


def _content_words(text: str) -> list[str]:
    return [word for word in re.findall(r"[a-z]{4,}", text.lower()) if word not in _COMMON]
