"""Label scores: macro and micro F1 over 13 and 14 labels, and scores of each label."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cxr.base.resources import load_resource
from cxr.language.reports.rules import structure
from cxr.metrics import labels as label_scores
from cxr.radvlm.evaluation.measures import ALL, Measure
from cxr.radvlm.labels import load_label_names
from cxr.radvlm.statements import split_sentences

RESOURCE_FILES = ("radvlm/labels.yaml", "radvlm/evaluation.yaml", "lexicon")
ASSERTED_HEDGES = ("definite", "strong")


@dataclass(frozen=True)
class LabelReader:
    """Reads labels from answers."""

    word_by_name: Mapping[str, str]  # {label in lower case: finding in the lexicon that replaces it}
    names: re.Pattern  # matches these labels
    denial: re.Pattern  # matches a denial of all findings

    def truth(self, labels: Sequence[str]) -> frozenset[str]:
        """Return the reference labels. "No Finding" is added if there is no label, or only "Support Devices"."""
        present_labels = set(labels) - {load_label_names().no_finding}
        has_finding = present_labels - {load_label_names().device}
        return frozenset(present_labels if has_finding else {*present_labels, load_label_names().no_finding})

    def substring(self, text: str) -> frozenset[str]:
        """Return the labels whose name occurs in a text, even if negated, as in the authors' code."""
        low = text.lower()
        return frozenset(name for name in load_label_names().names if name.lower() in low)

    def asserted(self, text: str) -> frozenset[str]:
        """Return the labels that a text asserts as certain or likely. "No Finding" requires that it denies findings and
        asserts none."""
        labels = {label for sentence in split_sentences(text) for label in self._sentence_labels(sentence)}
        if not labels - {load_label_names().device} and self.denial.search(text):
            labels.add(load_label_names().no_finding)
        return frozenset(labels)

    def _sentence_labels(self, sentence: str) -> set[str]:
        replace_name = lambda match: self.word_by_name[" ".join(match[1].lower().split())]  # noqa: E731
        normalized_sentence, number = self.names.subn(replace_name, sentence)
        words: set[str] = set()
        for finding in structure.structure_sentences([normalized_sentence] if number else [], unsided_effusion=True):
            if finding["presence"] == "positive" and finding["hedge"] in ASSERTED_HEDGES:
                words.add(finding["entity"])
            if finding["presence"] == "positive" and finding["predicted_hedge"] in ASSERTED_HEDGES:
                words.update(finding["candidates"])
        return {name for name in load_label_names().names if self.word_by_name.get(name.lower()) in words}


def load_label_reader() -> LabelReader:
    vocabulary = load_resource(RESOURCE_FILES[1])
    # without No Finding, which the published code does not score; longest names first
    names = sorted(set(load_label_names().names) - {load_label_names().no_finding}, key=lambda name: (-len(name), name))
    spaced = (r"\s+".join(map(re.escape, name.split())) for name in names)
    return LabelReader(
        {name.lower(): vocabulary["stand_ins"][name] for name in names},
        re.compile(rf"\b({'|'.join(spaced)})(?:s|es)?\b", re.IGNORECASE),
        re.compile("|".join(f"(?:{pattern})" for pattern in vocabulary["no_finding"]), re.IGNORECASE),
    )


def count_labels(pairs: Iterable[tuple | None], names: Sequence[str]) -> np.ndarray:
    """Return TP, FP and FN of the L labels ``names``, float64 (N, L, 3), for N pairs (predicted, reference labels). A
    pair that is None gives zeros."""
    texts = [([], []) if pair is None else pair for pair in pairs]
    predicted, reference = (
        np.array([[name in text[side] for name in names] for text in texts], bool).reshape(-1, len(names))
        for side in (0, 1)
    )
    outcomes = (predicted & reference, predicted & ~reference, reference & ~predicted)
    return np.stack(outcomes, axis=-1).astype(np.float64)


def measures(pairs: Sequence[tuple | None], names: Sequence[str], no_finding: str) -> list[Measure]:
    """Return the label measures of ``pairs`` (predicted labels, reference labels); None is an excluded failure.

    Names that end in ``_13`` leave out "No Finding". macro_f1 is the mean over labels that occur in the reference.
    macro_f1_zero is the mean over all labels; a label that does not occur in the reference counts as 0.
    """
    table = count_labels(pairs, names)
    support = table[..., [0, 2]].sum(axis=(0, 2))
    measures = []
    for number, scored_labels in ((14, list(names)), (13, [name for name in names if name != no_finding])):
        places = [names.index(name) for name in scored_labels]
        has_support = support[places] > 0
        sums = table[:, places].reshape(len(table), -1)
        measures += [
            Measure(f"macro_f1_{number}", ALL, sums, macro_f1(has_support)),
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


def macro_f1(has_support: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from sums of TP, FP and FN, (..., 3 L), to the mean F1 of the labels that are true in
    ``has_support``, bool (L,). Labels with an undefined F1 are skipped."""
    return lambda sums: label_scores.macro_f1(sums.reshape(*sums.shape[:-1], len(has_support), 3)[..., has_support, :])


def _macro_zero(sums: np.ndarray) -> np.ndarray:
    return np.nan_to_num(label_scores.f1(sums.reshape(*sums.shape[:-1], sums.shape[-1] // 3, 3))).mean(axis=-1)
