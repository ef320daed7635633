"""A measure of many samples: sums over them, and what is made of the sums. Its interval redraws patients."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.intervals import percentile_ends, resample_sums

ALL = "all"


class Measure(NamedTuple):
    """name: of the measure; part: all, or the name of what is asked; sums: of each sample, float64 (N, S); value: takes
    sums (..., S) and returns (...), NaN where there is nothing to measure; scale: what the value is multiplied by.
    """

    name: str
    part: str
    sums: np.ndarray
    value: Callable[[np.ndarray], np.ndarray]
    scale: float = 100.0


class Score(NamedTuple):
    """A value and the ends of its interval; None where there is none."""

    value: float | None
    low: float | None
    high: float | None


def ratio(sums: np.ndarray) -> np.ndarray:
    """Return the first of two sums (..., 2) over the second; NaN where that is 0."""
    below = sums[..., 1]
    return np.divide(sums[..., 0], below, out=np.full(np.shape(below), np.nan), where=below > 0)


def mean_ratio(sums: np.ndarray) -> np.ndarray:
    """Return the mean of the ratios of K pairs of sums, (..., 2 K); pairs without a denominator are left out."""
    ratios = ratio(sums.reshape(*sums.shape[:-1], sums.shape[-1] // 2, 2))
    is_defined = np.isfinite(ratios)
    count = is_defined.sum(axis=-1)
    total = np.where(is_defined, ratios, 0.0).sum(axis=-1)
    return np.divide(total, count, out=np.full(np.shape(count), np.nan), where=count > 0)


def mean_measure(name: str, values: Sequence[float | None], part: str = ALL, scale: float = 100.0) -> Measure:
    """Return the measure that is the mean of the samples' values; None: the sample is left out."""
    is_scored = np.array([value is not None for value in values], bool)
    filled_values = np.array([0.0 if value is None else float(value) for value in values])
    return Measure(name, part, np.stack([filled_values, is_scored], axis=1), ratio, scale)


def score_measures(
    measures: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float, seed: int
) -> list[Score]:
    """Return the score of each measure of the same samples, whose patients are ``subjects`` (N,)."""
    return [_score(*estimate, level) for estimate in _bootstrap(measures, subjects, replicates, seed)]


def score_differences(
    first: Sequence[Measure], second: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float,
    seed: int,
) -> list[Score]:  # fmt: skip
    """Return the differences of two lists of measures of the same samples, first less second, by the same draws."""
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
    """Return of each measure its value and those of the replicates (R,). The patients are drawn once for all."""
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
