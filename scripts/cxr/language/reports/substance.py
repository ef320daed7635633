"""Telling whether a text without a finding describes the chest, or only states that there is no report."""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.language.reports.vocabulary import WORD


@dataclass(frozen=True)
class Substance:
    """``phrases``: sentences about the report itself; ``says``: words that describe the chest."""

    phrases: re.Pattern
    says: frozenset[str]

    def lacks(self, sentences: list[str]) -> bool:
        """True if no sentence says anything of the chest."""
        chest_sentences = (sentence.lower() for sentence in sentences if not self.phrases.search(sentence))
        return all(self.says.isdisjoint(WORD.findall(sentence)) for sentence in chest_sentences)


@cache
def load_substance(path: str) -> Substance:
    """Read ``resources/reading/no_report.yaml``."""
    data = yaml.load(Path(path).read_text(encoding="utf-8"), yaml.BaseLoader)
    phrases = "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in data["phrases"])
    return Substance(re.compile(rf"\b(?:{phrases})\b", re.I), frozenset(data["says"]))
