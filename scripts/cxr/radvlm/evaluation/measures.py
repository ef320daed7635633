"""Measures, which are functions of sums over samples, and their bootstrap intervals by patient."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.intervals import percentile_ends, resample_sums
from cxr.metrics.labels import ratio_or_nan

ALL = "all"
HIT_IOU = 0.5  # minimum IoU of a correct box (paper)
MAP = "map50"  # mAP at HIT_IOU


class Measure(NamedTuple):
    """A measure of N samples, which is a function of sums over the samples."""

    name: str
    part: str  # all, or a label, finding or region
    sums: np.ndarray  # terms of each sample, float64 (N, S)
    value: Callable[[np.ndarray], np.ndarray]  # from sums (..., S) to values (...), NaN if undefined
    scale: float = 100.0  # factor of the value


class Score(NamedTuple):
    """A value with the ends of its interval. They are None if undefined."""

    value: float | None
    low: float | None
    high: float | None


def ratio(sums: np.ndarray) -> np.ndarray:
    """Return the first of two sums, (..., 2), divided by the second. It is NaN where the second is 0."""
    return ratio_or_nan(sums[..., 0], sums[..., 1])


def mean_ratio(sums: np.ndarray) -> np.ndarray:
    """Return the mean ratio of K pairs of sums, (..., 2 K). Pairs whose denominator is 0 are skipped."""
    ratios = ratio(sums.reshape(*sums.shape[:-1], sums.shape[-1] // 2, 2))
    is_defined = np.isfinite(ratios)
    return ratio(np.stack([np.where(is_defined, ratios, 0.0).sum(axis=-1), is_defined.sum(axis=-1)], axis=-1))


def mean_measure(name: str, values: Sequence[float | None], part: str = ALL, scale: float = 100.0) -> Measure:
    """Return the mean of the values that are not None as a measure. ``part``, ``scale``: fields of :class:`Measure`."""
    is_scored = np.array([value is not None for value in values], bool)
    filled_values = np.array([0.0 if value is None else float(value) for value in values])
    return Measure(name, part, np.stack([filled_values, is_scored], axis=1), ratio, scale)


def score_measures(
    measures: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float, seed: int
) -> list[Score]:
    """Return the score of each measure. ``subjects``: patient of each sample, (N,); ``level``: interval's coverage."""
    return [_score(*estimate, level) for estimate in _bootstrap(measures, subjects, replicates, seed)]


def score_differences(
    first: Sequence[Measure], second: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float,
    seed: int,
) -> list[Score]:  # fmt: skip
    """Return the scores of the differences first − second. Both have the same bootstrap replicates."""
    estimates = (_bootstrap(measures, subjects, replicates, seed) for measures in (first, second))
    return [
        _score(value - second_value, replicate_values - second_replicates, level)
        for (value, replicate_values), (second_value, second_replicates) in zip(*estimates, strict=True)
    ]


def _bootstrap(
    measures: Sequence[Measure], subjects: Sequence[str], replicates: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return (value, values of the replicates (R,)) of each measure. All measures share the replicates."""
    if not measures:
        return []
    sums = np.concatenate([measure.sums for measure in measures], axis=1)
    total_sums, replicate_sums = resample_sums(subjects, sums, replicates=replicates, seed=seed)
    ends = np.cumsum([measure.sums.shape[1] for measure in measures])[:-1]
    return [
        (np.asarray(measure.value(totals)) * measure.scale, np.asarray(measure.value(resampled)) * measure.scale)
        for measure, totals, resampled in zip(
            measures, np.split(total_sums, ends), np.split(replicate_sums, ends, axis=1), strict=True
        )
    ]


def _score(value: np.ndarray, replicates: np.ndarray, level: float) -> Score:
    low, high = percentile_ends(replicates[:, None], level) if len(replicates) else np.full((2, 1), np.nan)
    return Score(*(None if np.isnan(number) else float(number) for number in (value, low[0], high[0])))
