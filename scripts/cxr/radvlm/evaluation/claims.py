"""What a text says, as the reports' rules engine reads it: findings with polarity, side and zone."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.base.paths import RESOURCES
from cxr.language.reports import sentences
from cxr.language.reports.rules import lexicon, structure

RESOURCE_FILES = ("radvlm/evaluation.yaml", "lexicon")
_WORD = re.compile(r"[a-z0-9][a-z0-9-]*")
_BRACKETS = re.compile(r"\[[^\[\]]*\]|<box:[^<>]*>|<\|?[a-z_0-9/]+\|?>", re.IGNORECASE)


@dataclass(frozen=True)
class Said:
    """What an answer says. items: ("finding", entity, polarity), ("side" or "zone", entity or "", which); words: those
    that are not silent; sign: yes, no or "".
    """

    items: frozenset[tuple[str, str, str]]
    words: tuple[str, ...]
    sign: str

    @property
    def findings(self) -> frozenset[tuple[str, str]]:
        """(entity, polarity) of what is affirmed or denied."""
        return frozenset((entity, which) for kind, entity, which in self.items if kind == "finding")


class ClaimReader:
    """Reads findings of reports and of answers."""

    def __init__(self) -> None:
        told = yaml.safe_load((Path(RESOURCES) / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["judge"]
        self.lexicon = lexicon.load_lexicon(str(Path(RESOURCES) / RESOURCE_FILES[1]))
        self.places = {
            word: (kind, name)
            for kind, part in (("side", told["sides"]), ("zone", told["zones"]))
            for name, words in part.items()
            for word in words
        }
        self.silent = frozenset(told["silent"])

    def findings(self, report: str) -> tuple[frozenset[tuple[str, str, str]], frozenset[tuple[str, str]]]:
        """Return what a report affirms or denies: (entity, polarity, zone) for each zone, and (entity, polarity)."""
        held = [one for one in self._tuples(_split(report)) if one["denies"]]
        strict = {(one["entity"], one["presence"], zone) for one in held for zone in one["labels"] or [""]}
        return frozenset(strict), frozenset((entity, presence) for entity, presence, _ in strict)

    def answer(self, question: str, answer: str) -> Said:
        """Return what an answer says. The question tells what "yes" affirms and what "it" is; it claims nothing."""
        asked, told = _split(_BRACKETS.sub(" ", question)), _split(_BRACKETS.sub(" ", answer))
        alone = {_key(one) for one in self._tuples(asked)}
        tuples = [
            one
            for one in self._tuples([*asked, *told])
            if one["denies"] and (one["sentence_index"] > len(asked) or _key(one) not in alone)
        ]
        items = {("finding", one["entity"], one["presence"]) for one in tuples}
        for one in tuples:
            items |= {(kind, one["entity"], name) for kind, name in self._placed(" ".join(one["location"] or ()))}
        spoken = {one["sentence_index"] for one in tuples}
        for number, sentence in enumerate(told, start=len(asked) + 1):
            if number not in spoken:
                items |= {(kind, "", name) for kind, name in self._placed(sentence)}
        words = _words(_BRACKETS.sub(" ", answer))
        sign = words[0] if words[:1] in (["yes"], ["no"]) else ""
        return Said(frozenset(items), tuple(word for word in words if word not in self.silent), sign)

    def _tuples(self, told: list[str]) -> list[dict]:
        return structure.structure(told, self.lexicon, unsided_effusion=True) if told else []

    def _placed(self, text: str) -> Iterable[tuple[str, str]]:
        return {self.places[word] for word in _words(text) if word in self.places}


@cache
def claim_reader() -> ClaimReader:
    """Return the reader; its lexicon is loaded once."""
    return ClaimReader()


def _key(one: Mapping) -> tuple:
    return one["sentence_index"], one["entity"], one["presence"], one["hedge"], tuple(one["location"] or ())


def _split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences.split(text)]


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())
