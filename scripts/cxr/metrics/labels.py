"""Precision, recall and F1 of labels from counts of right, false and missed ones; NaN where a denominator is 0."""

import numpy as np


def precision(counts: np.ndarray) -> np.ndarray:
    """Return right / (right + false), float (...), of counts (..., 3): right, false, missed."""
    return share(counts[..., 0], counts[..., 0] + counts[..., 1])


def recall(counts: np.ndarray) -> np.ndarray:
    """Return right / (right + missed), float (...), of counts (..., 3): right, false, missed."""
    return share(counts[..., 0], counts[..., 0] + counts[..., 2])


def f1(counts: np.ndarray) -> np.ndarray:
    """Return the F1, float (...), of counts (..., 3): right, false, missed."""
    return share(2 * counts[..., 0], 2 * counts[..., 0] + counts[..., 1] + counts[..., 2])


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Return the macro F1, float (...), of counts (..., labels, 3): the mean over labels present or predicted."""
    values = f1(counts)
    is_defined = np.isfinite(values)
    return share(np.where(is_defined, values, 0).sum(-1), is_defined.sum(-1))


def share(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return part / whole as float, NaN where the whole is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(part, float) / total
