"""Measures: functions of sums over samples, with bootstrap intervals by patient."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.intervals import percentile_ends, resample_sums

ALL = "all"
HIT_IOU, STRICT_IOU = 0.5, 0.75
"""IoU from which a box is correct (paper), and of a strict hit."""
COCO_IOUS = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
"""IoUs that COCO's AP averages."""
MAP, STRICT_MAP = "map50", "map75"
"""mAP at the IoU of a hit, and of a strict hit."""


class Measure(NamedTuple):
    """A measure. part: all, or a label, finding or region; sums: terms of each sample, float64 (N, S); value: maps sums
    (..., S) to (...), NaN if undefined; scale: factor of the value.
    """

    name: str
    part: str
    sums: np.ndarray
    value: Callable[[np.ndarray], np.ndarray]
    scale: float = 100.0


class Score(NamedTuple):
    """A value and its interval; None if undefined."""

    value: float | None
    low: float | None
    high: float | None


def ratio(sums: np.ndarray) -> np.ndarray:
    """Return the first of two sums (..., 2) divided by the second; NaN where that is 0."""
    below = sums[..., 1]
    return np.divide(sums[..., 0], below, out=np.full(np.shape(below), np.nan), where=below > 0)


def mean_ratio(sums: np.ndarray) -> np.ndarray:
    """Return the mean ratio of K pairs of sums, (..., 2 K); pairs with denominator 0 are skipped."""
    ratios = ratio(sums.reshape(*sums.shape[:-1], sums.shape[-1] // 2, 2))
    is_defined = np.isfinite(ratios)
    count = is_defined.sum(axis=-1)
    total = np.where(is_defined, ratios, 0.0).sum(axis=-1)
    return np.divide(total, count, out=np.full(np.shape(count), np.nan), where=count > 0)


def mean_measure(name: str, values: Sequence[float | None], part: str = ALL, scale: float = 100.0) -> Measure:
    """Return the mean of the samples' values as a measure; None values are excluded."""
    is_scored = np.array([value is not None for value in values], bool)
    filled_values = np.array([0.0 if value is None else float(value) for value in values])
    return Measure(name, part, np.stack([filled_values, is_scored], axis=1), ratio, scale)


def score_measures(
    measures: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float, seed: int
) -> list[Score]:
    """Return the score of each measure; ``subjects`` (N,): patients of the samples."""
    return [_score(*estimate, level) for estimate in _bootstrap(measures, subjects, replicates, seed)]


def score_differences(
    first: Sequence[Measure], second: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float,
    seed: int,
) -> list[Score]:  # fmt: skip
    """Return the scores of the differences first - second, using the same bootstrap replicates."""
    estimate_pairs = zip(
        _bootstrap(first, subjects, replicates, seed), _bootstrap(second, subjects, replicates, seed), strict=True
    )
    return [
        _score(first_estimate[0] - second_estimate[0], first_estimate[1] - second_estimate[1], level)
        for first_estimate, second_estimate in estimate_pairs
    ]


def _bootstrap(
    measures: Sequence[Measure], subjects: Sequence[str], replicates: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (value, replicate values (R,)) of each measure; all measures share the replicates."""
    if not measures:
        return []
    total_sums, replicate_sums = resample_sums(
        subjects, np.concatenate([measure.sums for measure in measures], axis=1), replicates=replicates, seed=seed
    )
    estimates, start = [], 0
    for measure in measures:
        end = start + measure.sums.shape[1]
        value, replicate_values = measure.value(total_sums[start:end]), measure.value(replicate_sums[:, start:end])
        estimates.append((np.asarray(value) * measure.scale, np.asarray(replicate_values) * measure.scale))
        start = end
    return estimates


def _score(value: np.ndarray, replicates: np.ndarray, level: float) -> Score:
    low, high = (
        percentile_ends(replicates[:, None], level) if len(replicates) else (np.array([np.nan]), np.array([np.nan]))
    )
    return Score(*(None if np.isnan(number) else float(number) for number in (value, low[0], high[0])))
