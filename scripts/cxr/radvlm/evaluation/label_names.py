"""Labels in an answer: asserted labels, or label names as substrings as in the published code."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from cxr.base.lesions import LESION_TYPES
from cxr.base.paths import RESOURCES
from cxr.language.reports.rules import lexicon, structure
from cxr.radvlm.statements import split_sentences

RESOURCE_FILES = ("radvlm/labels.yaml", "radvlm/evaluation.yaml", "lexicon")
ASSERTED_HEDGES = ("definite", "strong")


@dataclass(frozen=True)
class LabelReader:
    """Reads labels from answers. names: the 14 labels; nothing: No Finding; device: Support Devices; words: {label:
    finding name that replaces it for the rules engine}; denial: denial of all findings; synonyms: {entity or lesion:
    labels}, empty if only label names count.
    """

    names: tuple[str, ...]
    nothing: str
    device: str
    words: Mapping[str, str]
    denial: re.Pattern
    synonyms: Mapping[str, Sequence[str]]
    lexicon: lexicon.Lexicon

    @property
    def scored(self) -> tuple[str, ...]:
        """The 13 labels without No Finding, as scored by the published code."""
        return tuple(name for name in self.names if name != self.nothing)

    def truth(self, labels: Sequence[str]) -> frozenset[str]:
        """Return the reference labels; No Finding if nothing but Support Devices is present."""
        present_labels = set(labels) - {self.nothing}
        return frozenset(present_labels | (set() if present_labels - {self.device} else {self.nothing}))

    def substring(self, text: str) -> frozenset[str]:
        """Return the labels whose lower-case name is in the text, negated or not (published code)."""
        low = text.lower()
        return frozenset(name for name in self.names if name.lower() in low)

    def asserted(self, text: str) -> frozenset[str]:
        """Return the labels that a text asserts; weakly hedged labels are not asserted.

        No Finding: the text denies all findings and asserts none but Support Devices.
        """
        labels = {name for sentence in split_sentences(text) for name in self._sentence_labels(sentence)}
        if self.synonyms:
            labels |= self._synonym_labels(text)
        if not labels - {self.device} and self.denial.search(text):
            labels.add(self.nothing)
        return frozenset(labels)

    def _sentence_labels(self, sentence: str) -> set[str]:
        """Return the labels that a sentence names and asserts.

        Label names are replaced by findings of the lexicon, so that the scope rules apply.
        """
        label_by_word = {word: label for label, word in self.words.items()}
        normalized_sentence, number = self._label_pattern().subn(
            lambda match: self.words[self._label(match[1])], sentence
        )
        if not number:
            return set()
        labels = set()
        for finding in structure.structure_sentences([normalized_sentence], self.lexicon, unsided_effusion=True):
            if finding["presence"] != "positive":
                continue
            if finding["hedge"] in ASSERTED_HEDGES and (label := label_by_word.get(finding["entity"])):
                labels.add(label)
            if finding["predicted_hedge"] in ASSERTED_HEDGES:
                labels |= {label_by_word[name] for name in finding["candidates"] if name in label_by_word}
        return labels

    def _label_pattern(self) -> re.Pattern:
        return _compile_names(self.scored)

    def _label(self, label_text: str) -> str:
        return {name.lower(): name for name in self.scored}[" ".join(label_text.lower().split())]

    def _synonym_labels(self, text: str) -> set[str]:
        findings = structure.structure_sentences(split_sentences(text), self.lexicon, unsided_effusion=True)
        sure_findings = (
            finding for finding in findings if finding["presence"] == "positive" and finding["hedge"] in ASSERTED_HEDGES
        )
        return {
            label
            for finding in sure_findings
            for label in self.synonyms.get(finding["lesion_type"] or finding["entity"], ())
        }


def load_label_reader(*, synonyms: bool = False) -> LabelReader:
    """Load the reader. ``synonyms``: count other words for a label too."""
    labels, evaluation_words = (
        yaml.safe_load((Path(RESOURCES) / name).read_text(encoding="utf-8")) for name in RESOURCE_FILES[:2]
    )
    labels_by_lesion = {lesion.name: lesion.labels for lesion in LESION_TYPES}
    labels_by_entity = {**labels["entities"], **labels_by_lesion} if synonyms else {}
    denial = re.compile("|".join(f"(?:{pattern})" for pattern in evaluation_words["no_finding"]), re.IGNORECASE)
    return LabelReader(
        tuple(labels["labels"]), labels["no_finding"], labels["devices"], evaluation_words["stand_ins"], denial,
        labels_by_entity, lexicon.load_lexicon(str(Path(RESOURCES) / RESOURCE_FILES[2])),
    )  # fmt: skip


@cache
def _compile_names(names: tuple[str, ...]) -> re.Pattern:
    """Return a pattern of label names, longest first, with optional plural ending."""
    ordered = sorted(names, key=lambda name: (-len(name), name))
    spaced = (r"\s+".join(map(re.escape, name.split())) for name in ordered)
    return re.compile(rf"\b({'|'.join(spaced)})(?:s|es)?\b", re.IGNORECASE)
