"""A measure of many samples: sums over them, and what is made of the sums. Its interval redraws patients."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.bootstrap import ends, summed

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
    each = ratio(sums.reshape(*sums.shape[:-1], sums.shape[-1] // 2, 2))
    known = np.isfinite(each)
    count = known.sum(axis=-1)
    total = np.where(known, each, 0.0).sum(axis=-1)
    return np.divide(total, count, out=np.full(np.shape(count), np.nan), where=count > 0)


def mean_of(name: str, values: Sequence[float | None], part: str = ALL, scale: float = 100.0) -> Measure:
    """Return the measure that is the mean of the samples' values; None: the sample is left out."""
    known = np.array([value is not None for value in values], bool)
    held = np.array([0.0 if value is None else float(value) for value in values])
    return Measure(name, part, np.stack([held, known], axis=1), ratio, scale)


def scores(
    measures: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float, seed: int
) -> list[Score]:
    """Return the score of each measure of the same samples, whose patients are ``subjects`` (N,)."""
    return [_score(*one, level) for one in _replicated(measures, subjects, replicates, seed)]


def gains(
    first: Sequence[Measure], second: Sequence[Measure], subjects: Sequence[str], *, replicates: int, level: float,
    seed: int,
) -> list[Score]:  # fmt: skip
    """Return the differences of two lists of measures of the same samples, first less second, by the same draws."""
    both = zip(
        _replicated(first, subjects, replicates, seed), _replicated(second, subjects, replicates, seed), strict=True
    )
    return [_score(one[0] - other[0], one[1] - other[1], level) for one, other in both]


def _replicated(
    measures: Sequence[Measure], subjects: Sequence[str], replicates: int, seed: int
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return of each measure its value and those of the replicates (R,). The patients are drawn once for all."""
    if not measures:
        return []
    whole, drawn = summed(
        subjects, np.concatenate([one.sums for one in measures], axis=1), replicates=replicates, seed=seed
    )
    found, start = [], 0
    for one in measures:
        end = start + one.sums.shape[1]
        value, each = one.value(whole[start:end]), one.value(drawn[:, start:end])
        found.append((np.asarray(value) * one.scale, np.asarray(each) * one.scale))
        start = end
    return found


def _score(value: np.ndarray, replicates: np.ndarray, level: float) -> Score:
    low, high = ends(replicates[:, None], level) if len(replicates) else (np.array([np.nan]), np.array([np.nan]))
    return Score(*(None if np.isnan(one) else float(one) for one in (value, low[0], high[0])))
