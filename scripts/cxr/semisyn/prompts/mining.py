"""Turn structured reports into phrases: sentences of one finding, restricted to words that identify no patient."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cxr.base.vocabulary import FINDINGS

POSITIVE, DEFINITIVE, DEFINITE = "positive", "definitive", "definite"
SECTIONS = ("findings", "impression", "last_paragraph")
"""Sections of a report that are mined, as in the paper."""
SEVERAL, UNSURE, SHARED, WORDS, BARE = (
    "several findings in the report", "not certain", "another finding in the sentence", "a word that is not listed",
    "does not name the finding",
)  # fmt: skip


class Mention(NamedTuple):
    """A phrase that describes a finding in a patient's report or in a reference."""

    finding: str
    phrase: str
    patient: str


@dataclass(frozen=True)
class Vocabulary:
    """``dropped``: words removed from a sentence; ``allowed``: the only words that a phrase may have."""

    dropped: frozenset[str]
    allowed: frozenset[str]

    def phrase(self, sentence: str) -> str | None:
        """Return the phrase of a sentence, None if it has any other word or becomes empty."""
        words = [word for word in re.findall(r"[^\W_]+", sentence.lower()) if word not in self.dropped]
        if not words or any(word not in self.allowed for word in words):
            return None
        text = " ".join(_trim_words(words))
        return f"{text[:1].upper()}{text[1:]}." if text else None


JOINS, ARTICLE = ("in", "at", "of", "with", "within", "and", "or"), "the"


def _trim_words(words: list[str]) -> list[str]:
    """Remove prepositions and articles at both ends, repeated prepositions, and articles without a preposition."""
    small = (*JOINS, ARTICLE)
    while words and words[0] in small:
        words = words[1:]
    while words and words[-1] in small:
        words = words[:-1]
    trimmed: list[str] = []
    for word in words:
        before = trimmed[-1] if trimmed else ""
        if word in small and before in JOINS and word != ARTICLE:
            continue
        if word != ARTICLE or before in JOINS:
            trimmed.append(word)
    return trimmed


@dataclass
class MinedReports:
    """``mentions``: the phrases; ``excluded``: {(finding, reason): sentences without a phrase}."""

    mentions: list[Mention] = field(default_factory=list)
    excluded: Counter = field(default_factory=Counter)


def finding_of(entity: Mapping) -> str | None:
    """Return the finding of a report's tuple: its lesion type, or its entity if that names a finding; else None."""
    return next((name for name in (entity["lesion_type"], entity["entity"]) if name in FINDINGS), None)


def mine_reports(lines: Iterable[Mapping], vocabulary: Vocabulary) -> MinedReports:
    """Return the phrases of reports (lines of the reports stage) with exactly one positive finding.

    A sentence is used if all its positive tuples are certain and of that finding, and all its words are allowed.
    """
    mined = MinedReports()
    for line in lines:
        positives = [
            statement for statement in (*line["tuples"], *line["other_tuples"]) if statement["presence"] == POSITIVE
        ]
        names = {finding_of(statement) for statement in positives} - {None}
        for number, tuples in _by_sentence(line["tuples"]):
            name = next((finding_of(statement) for statement in tuples if finding_of(statement)), None)
            if name is None:
                continue
            why = _reason_unfit(tuples, names)
            phrase = None if why else vocabulary.phrase(line["sentences"][number - 1])
            if phrase is None:
                mined.excluded[name, why or WORDS] += 1
            else:
                mined.mentions.append(Mention(name, phrase, line["subject_id"]))
    return mined


def _by_sentence(tuples: Iterable[Mapping]) -> Iterator[tuple[int, list[Mapping]]]:
    statements_by_sentence: dict[int, list[Mapping]] = {}
    for statement in tuples:
        if statement["presence"] == POSITIVE:
            statements_by_sentence.setdefault(statement["sentence_index"], []).append(statement)
    yield from sorted(statements_by_sentence.items())


def _reason_unfit(tuples: list[Mapping], names: set[str]) -> str:
    """Return why a sentence is not mined, "" if it is."""
    if len(names) > 1:
        return SEVERAL
    if any(finding_of(statement) is None for statement in tuples):
        return SHARED
    if any(statement["certainty"] != DEFINITIVE or statement["hedge"] != DEFINITE for statement in tuples):
        return UNSURE
    return ""


class Phrase(NamedTuple):
    """A phrase with its counts in reports and in the reference, its number of patients and its weight."""

    finding: str
    phrase: str
    reports: int
    reference: int
    patients: int
    weight: float


def pool_phrases(reports: Iterable[Mention], reference: Iterable[Mention], least: int) -> list[Phrase]:
    """Return the phrases of at least ``least`` patients, the most frequent first.

    Reports and reference have equal total weight (the paper); if one has no phrase of a finding, the other has it all.
    """
    counts = [Counter((mention.finding, mention.phrase) for mention in pool) for pool in (reports, reference)]
    patients: dict[tuple[str, str], set[str]] = {}
    for mention in (*reports, *reference):
        patients.setdefault((mention.finding, mention.phrase), set()).add(mention.patient)
    frequent_keys = [key for key, subjects in patients.items() if len(subjects) >= least]
    phrases = []
    for finding in FINDINGS:
        finding_keys = [key for key in frequent_keys if key[0] == finding]
        sums = [sum(count[key] for key in finding_keys) for count in counts]
        pools = sum(total > 0 for total in sums)
        for key in finding_keys:
            shares = (count[key] / total / pools for count, total in zip(counts, sums, strict=True) if total)
            phrases.append(Phrase(*key, counts[0][key], counts[1][key], len(patients[key]), sum(shares)))
    order = {name: at for at, name in enumerate(FINDINGS)}
    return sorted(phrases, key=lambda phrase: (order[phrase.finding], -phrase.weight, phrase.phrase))
