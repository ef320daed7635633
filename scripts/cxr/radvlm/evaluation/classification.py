"""Scores of labels: macro and micro F1 over 13 and 14 labels, and each label's own."""

from collections.abc import Collection, Sequence

import numpy as np

from cxr.metrics import labels as label_scores
from cxr.radvlm.evaluation.measures import ALL, Measure


def counts_of(said: Collection[str], true: Collection[str], names: Sequence[str]) -> np.ndarray:
    """Return right, false and missed, float64 (L, 3), of the labels ``names``."""
    return np.array(
        [(name in said and name in true, name in said and name not in true, name in true and name not in said)
         for name in names], np.float64,
    )  # fmt: skip


def measures(
    said: Sequence[Collection[str] | None], true: Sequence[Collection[str]], names: Sequence[str], nothing: str
) -> list[Measure]:
    """Return the measures of N answers over the labels ``names``, of which ``nothing`` is No Finding.

    macro_f1: over labels that the reference has; macro_f1_zero: over all, 0 for one that it has not. ``_13``: without
    No Finding. None: a failure that is left out.
    """
    empty = np.zeros((len(names), 3))
    table = np.array([empty if one is None else counts_of(one, held, names)
                      for one, held in zip(said, true, strict=True)]).reshape(-1, len(names), 3)  # fmt: skip
    support = table[..., [0, 2]].sum(axis=(0, 2))
    found = []
    for number, kept in ((14, list(names)), (13, [name for name in names if name != nothing])):
        places = [names.index(name) for name in kept]
        there = support[places] > 0
        sums = table[:, places].reshape(len(table), -1)
        found += [
            Measure(f"macro_f1_{number}", ALL, sums, _macro(there)),
            Measure(f"macro_f1_zero_{number}", ALL, sums, _macro_zero(len(places))),
            Measure(f"micro_f1_{number}", ALL, table[:, places].sum(axis=1), label_scores.f1),
        ]
    for place, name in enumerate(names):
        own = table[:, place]
        found += [
            Measure("f1", name, own, label_scores.f1),
            Measure("precision", name, own, label_scores.precision),
            Measure("recall", name, own, label_scores.recall),
            Measure("support", name, own[:, [0, 2]], lambda sums: sums.sum(axis=-1), 1.0),
        ]
    return found


def _macro(there: np.ndarray):
    """Return the mean F1 of the labels that the reference has, (L,) bool; a replicate without one leaves it out."""

    def value(sums: np.ndarray) -> np.ndarray:
        counts = sums.reshape(*sums.shape[:-1], len(there), 3)[..., there, :]
        return label_scores.macro_f1(counts)

    return value


def _macro_zero(number: int):
    def value(sums: np.ndarray) -> np.ndarray:
        return np.nan_to_num(label_scores.f1(sums.reshape(*sums.shape[:-1], number, 3))).mean(axis=-1)

    return value
