"""Precision, recall and F1 from counts of (right, false, missed) labels; and AUROC. NaN where a denominator is 0."""

import numpy as np


def precision(counts: np.ndarray) -> np.ndarray:
    """Return right / (right + false), float (...), from counts (..., 3): right, false, missed."""
    return ratio_or_nan(counts[..., 0], counts[..., 0] + counts[..., 1])


def recall(counts: np.ndarray) -> np.ndarray:
    """Return right / (right + missed), float (...), from counts (..., 3): right, false, missed."""
    return ratio_or_nan(counts[..., 0], counts[..., 0] + counts[..., 2])


def f1(counts: np.ndarray) -> np.ndarray:
    """Return the F1, float (...), from counts (..., 3): right, false, missed."""
    return ratio_or_nan(2 * counts[..., 0], 2 * counts[..., 0] + counts[..., 1] + counts[..., 2])


def macro_f1(counts: np.ndarray) -> np.ndarray:
    """Return the mean F1, float (...), of labels that occur or are predicted, from counts (..., labels, 3)."""
    values = f1(counts)
    is_defined = np.isfinite(values)
    return ratio_or_nan(np.where(is_defined, values, 0).sum(-1), is_defined.sum(-1))


def ratio_or_nan(part: np.ndarray, total: np.ndarray) -> np.ndarray:
    """Return part / total as float, NaN where the total is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(part, float) / total


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the area under the ROC curve of N positive and M negative scores, N and M > 0; a tie counts one half."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.mean() / 2 / len(negative))
