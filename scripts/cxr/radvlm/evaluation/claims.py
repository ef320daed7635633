"""Claims of a text: its findings with polarity, side and zone, read by the rules engine of the reports."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from cxr.base.resources import load_resource
from cxr.language.reports.rules import structure
from cxr.radvlm.statements import split_sentences

RESOURCE_FILES = ("radvlm/evaluation.yaml", "lexicon")
_WORD = re.compile(r"[a-z0-9][a-z0-9-]*")
_BRACKETS = re.compile(r"\[[^\[\]]*\]|<box:[^<>]*>|<\|?[a-z_0-9/]+\|?>", re.IGNORECASE)


@dataclass(frozen=True)
class AnswerClaims:
    """The claims of an answer."""

    items: frozenset[tuple[str, str, str]]  # ("finding", entity, polarity), ("side" or "zone", entity or "", name)
    words: tuple[str, ...]  # content words
    sign: str  # "yes" or "no" if it is the first word, else ""

    @property
    def findings(self) -> frozenset[tuple[str, str]]:
        """(entity, polarity) of the findings that are affirmed or denied."""
        return frozenset((entity, which) for kind, entity, which in self.items if kind == "finding")


@cache
def _load_places() -> dict[str, tuple[str, str]]:
    vocabulary = load_resource(RESOURCE_FILES[0])["judge"]
    places = {"side": vocabulary["sides"], "zone": vocabulary["zones"]}
    return {word: (kind, name) for kind, part in places.items() for name, words in part.items() for word in words}


def read_report(report: str) -> tuple[frozenset[tuple[str, str, str]], frozenset[tuple[str, str]]]:
    """Return the claims of a report as two sets: (entity, polarity, zone) for each zone, and (entity, polarity)."""
    findings = [finding for finding in _find_tuples(split_sentences(report)) if finding["denies"]]
    strict = frozenset(
        (finding["entity"], finding["presence"], zone) for finding in findings for zone in finding["labels"] or [""]
    )
    return strict, frozenset((entity, presence) for entity, presence, _ in strict)


def read_answer(question: str, answer: str) -> AnswerClaims:
    """Return the claims of an answer. The question serves only to resolve "yes" and "it"."""
    questions, answers = (split_sentences(_BRACKETS.sub(" ", text)) for text in (question, answer))
    question_keys = {_finding_key(finding) for finding in _find_tuples(questions)}
    findings = [
        finding
        for finding in _find_tuples([*questions, *answers])
        if finding["denies"]
        and (finding["sentence_index"] > len(questions) or _finding_key(finding) not in question_keys)
    ]
    items = {("finding", finding["entity"], finding["presence"]) for finding in findings}
    located = [(finding["entity"], " ".join(finding["location"] or ())) for finding in findings]
    numbers_with_findings = {finding["sentence_index"] for finding in findings}
    numbered = enumerate(answers, start=len(questions) + 1)
    located += [("", sentence) for number, sentence in numbered if number not in numbers_with_findings]
    for entity, text in located:
        places = (_load_places()[word] for word in _words(text) if word in _load_places())
        items |= {(kind, entity, name) for kind, name in places}
    words, silent = _words(_BRACKETS.sub(" ", answer)), load_resource(RESOURCE_FILES[0])["judge"]["silent"]
    sign = words[0] if words[:1] in (["yes"], ["no"]) else ""
    return AnswerClaims(frozenset(items), tuple(word for word in words if word not in silent), sign)


def _find_tuples(sentence_texts: list[str]) -> list[dict]:
    return structure.structure_sentences(sentence_texts, unsided_effusion=True)


def _finding_key(finding: Mapping) -> tuple:
    keys = ("sentence_index", "entity", "presence", "hedge")
    return *(finding[key] for key in keys), tuple(finding["location"] or ())


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
