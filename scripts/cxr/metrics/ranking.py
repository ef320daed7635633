"""Measures of a ranking by scores."""

import numpy as np


def auroc(positive: np.ndarray, negative: np.ndarray) -> float:
    """Return the area under the ROC curve of scores (N,) and (M,), neither empty; a tie counts as one half."""
    ordered = np.sort(negative)
    below = np.searchsorted(ordered, positive, "left") + np.searchsorted(ordered, positive, "right")
    return float(below.mean() / 2 / len(negative))
