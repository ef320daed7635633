"""Label scores: macro and micro F1 over 13 and 14 labels, and per label."""

from collections.abc import Collection, Sequence

import numpy as np

from cxr.metrics import labels as label_scores
from cxr.radvlm.evaluation.measures import ALL, Measure


def count_labels(predicted: Collection[str], reference: Collection[str], names: Sequence[str]) -> np.ndarray:
    """Return true positives, false positives and false negatives, float64 (L, 3), of the labels ``names``."""
    is_predicted = np.array([name in predicted for name in names], bool)
    is_reference = np.array([name in reference for name in names], bool)
    outcomes = (is_predicted & is_reference, is_predicted & ~is_reference, is_reference & ~is_predicted)
    return np.stack(outcomes, axis=-1).astype(np.float64)


def measures(
    predictions: Sequence[Collection[str] | None],
    references: Sequence[Collection[str]],
    names: Sequence[str],
    nothing: str,
) -> list[Measure]:
    """Return the measures of N answers over the labels ``names``; ``nothing`` is No Finding.

    macro_f1: over labels in the reference; macro_f1_zero: over all labels, 0 for those not in the reference. ``_13``:
    without No Finding. A prediction of None is an excluded failure.
    """
    empty = np.zeros((len(names), 3))
    counts = [
        empty if predicted is None else count_labels(predicted, reference, names)
        for predicted, reference in zip(predictions, references, strict=True)
    ]
    table = np.array(counts).reshape(-1, len(names), 3)
    support = table[..., [0, 2]].sum(axis=(0, 2))
    measures = []
    for number, scored_labels in ((14, list(names)), (13, [name for name in names if name != nothing])):
        places = [names.index(name) for name in scored_labels]
        has_support = support[places] > 0
        sums = table[:, places].reshape(len(table), -1)
        measures += [
            Measure(f"macro_f1_{number}", ALL, sums, _macro(has_support)),
            Measure(f"macro_f1_zero_{number}", ALL, sums, _macro_zero(len(places))),
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


def _macro(has_support: np.ndarray):
    """Return the mean F1 of labels with support, bool (L,); replicates skip labels without support."""

    def value(sums: np.ndarray) -> np.ndarray:
        counts = sums.reshape(*sums.shape[:-1], len(has_support), 3)[..., has_support, :]
        return label_scores.macro_f1(counts)

    return value


def _macro_zero(number: int):
    def value(sums: np.ndarray) -> np.ndarray:
        return np.nan_to_num(label_scores.f1(sums.reshape(*sums.shape[:-1], number, 3))).mean(axis=-1)

    return value
