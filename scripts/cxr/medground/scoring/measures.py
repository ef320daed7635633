"""Measures of one answer, of pairs of answers, and their intervals."""

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from cxr.geometry.boxes import box_iou
from cxr.metrics.intervals import ratio_intervals, sums_by_subject


def matched_iou(predicted: np.ndarray, reference: np.ndarray) -> float:
    """Return the greatest sum of IoU over one-to-one matches of boxes, (N, 4) and (M, 4), over the larger number.

    A box too many counts like one that is missing. 0 where one side has none.
    """
    if not len(predicted) or not len(reference):
        return 0.0
    table = box_iou(predicted.astype(np.float64), reference.astype(np.float64))
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / max(table.shape))


def means(
    values: np.ndarray, subjects: Sequence[str], *, replicates: int, level: float, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, lower and upper end, (K,) each, of columns of values (N, K); intervals by subject, NaN left out."""
    has_value = ~np.isnan(values)
    _, subject = np.unique(np.asarray(subjects, str), return_inverse=True)
    count = int(subject.max(initial=-1)) + 1
    tops = sums_by_subject(subject, count, np.where(has_value, values, 0.0))
    below = sums_by_subject(subject, count, has_value.astype(np.float64))
    total = below.sum(axis=0)
    mean = np.divide(tops.sum(axis=0), total, out=np.full(values.shape[1], np.nan), where=total > 0)
    return mean, *ratio_intervals(tops, below, replicates=replicates, level=level, seed=seed)


def both_right(pairs: Sequence[Mapping], ious: Mapping[str, float], tau: float) -> np.ndarray:
    """Return of each pair whether both IoU exceed ``tau``, float64 (N,); NaN where one of them is not scored."""
    iou_pairs = [(ious.get(pair["first"]), ious.get(pair["second"])) for pair in pairs]
    return np.array([np.nan if None in iou_pair else float(min(iou_pair) > tau) for iou_pair in iou_pairs])
