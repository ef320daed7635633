"""Label scores: macro and micro F1 over 13 and 14 labels, and per label."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from cxr.base.resources import load_resource
from cxr.language.reports.rules import lexicon, structure
from cxr.metrics import labels as label_scores
from cxr.radvlm.evaluation.measures import ALL, Measure
from cxr.radvlm.statements import load_lexicon, split_sentences

RESOURCE_FILES = ("radvlm/labels.yaml", "radvlm/evaluation.yaml", "lexicon")
ASSERTED_HEDGES = ("definite", "strong")


@dataclass(frozen=True)
class LabelReader:
    """Reads labels from answers. names: the 14 labels; nothing: No Finding; device: Support Devices; words: {label:
    finding name that replaces it for the rules engine}; denial: denial of all findings.
    """

    names: tuple[str, ...]
    nothing: str
    device: str
    words: Mapping[str, str]
    denial: re.Pattern
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
        if not labels - {self.device} and self.denial.search(text):
            labels.add(self.nothing)
        return frozenset(labels)

    def _sentence_labels(self, sentence: str) -> set[str]:
        """Return the labels that a sentence names and asserts.

        Label names are replaced by findings of the lexicon, so that the scope rules apply.
        """
        label_by_word = {word: label for label, word in self.words.items()}
        label_by_name = {name.lower(): name for name in self.scored}
        normalized_sentence, number = _compile_names(self.scored).subn(
            lambda match: self.words[label_by_name[" ".join(match[1].lower().split())]], sentence
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


def load_label_reader() -> LabelReader:
    """Load the reader."""
    labels, evaluation_words = map(load_resource, RESOURCE_FILES[:2])
    denial = re.compile("|".join(f"(?:{pattern})" for pattern in evaluation_words["no_finding"]), re.IGNORECASE)
    return LabelReader(
        tuple(labels["labels"]), labels["no_finding"], labels["devices"], evaluation_words["stand_ins"], denial,
        load_lexicon(),
    )  # fmt: skip


@cache
def _compile_names(names: tuple[str, ...]) -> re.Pattern:
    """Return a pattern of label names, longest first, with optional plural ending."""
    ordered = sorted(names, key=lambda name: (-len(name), name))
    spaced = (r"\s+".join(map(re.escape, name.split())) for name in ordered)
    return re.compile(rf"\b({'|'.join(spaced)})(?:s|es)?\b", re.IGNORECASE)


def count_labels(pairs: Iterable[tuple | None], names: Sequence[str]) -> np.ndarray:
    """Return true positives, false positives and false negatives, float64 (N, L, 3), of the labels ``names``.

    ``pairs``: (predicted, reference) labels of N texts, None if excluded.
    """
    texts = [([], []) if pair is None else pair for pair in pairs]
    predicted, reference = (
        np.array([[name in text[side] for name in names] for text in texts], bool).reshape(-1, len(names))
        for side in (0, 1)
    )
    outcomes = (predicted & reference, predicted & ~reference, reference & ~predicted)
    return np.stack(outcomes, axis=-1).astype(np.float64)


def measures(pairs: Sequence[tuple | None], names: Sequence[str], nothing: str) -> list[Measure]:
    """Return the measures of the ``pairs`` of :func:`count_labels`; ``nothing`` is No Finding.

    macro_f1: over labels in the reference; macro_f1_zero: over all labels, 0 for those not in the reference. ``_13``:
    without No Finding.
    """
    table = count_labels(pairs, names)
    support = table[..., [0, 2]].sum(axis=(0, 2))
    measures = []
    for number, scored_labels in ((14, list(names)), (13, [name for name in names if name != nothing])):
        places = [names.index(name) for name in scored_labels]
        has_support = support[places] > 0
        sums = table[:, places].reshape(len(table), -1)
        measures += [
            Measure(f"macro_f1_{number}", ALL, sums, _macro(has_support)),
            Measure(f"macro_f1_zero_{number}", ALL, sums, _macro_zero),
            Measure(f"micro_f1_{number}", ALL, table[:, places].sum(axis=1), label_scores.f1),
        ]
    for place, name in enumerate(names):
        label_counts = table[:, place]
        measures += [
            Measure("f1", name, label_counts, label_scores.f1),
            Measure("precision", name, label_counts, label_scores.precision),
            Measure("recall", name, label_counts, label_scores.recall),
            Measure("support", name, label_counts[:, [0, 2]], lambda sums: sums.sum(axis=-1), 1.0),
        ]
    return measures


def _macro(has_support: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return the mean F1 of labels with support, bool (L,); replicates skip labels without support."""
    return lambda sums: label_scores.macro_f1(sums.reshape(*sums.shape[:-1], len(has_support), 3)[..., has_support, :])


def _macro_zero(sums: np.ndarray) -> np.ndarray:
    return np.nan_to_num(label_scores.f1(sums.reshape(*sums.shape[:-1], sums.shape[-1] // 3, 3))).mean(axis=-1)
