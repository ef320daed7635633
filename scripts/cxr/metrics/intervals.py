"""Confidence intervals: bootstrap percentiles over patients, and Wilson's interval of a rate.

Patients are resampled because samples of the same patient are not independent. A metric is a ratio of two sums over
patients, such as correct answers / all answers. A replicate draws as many patients as there are, with replacement, so
its sums are the patients' sums, weighted by how often each patient was drawn.
"""

from collections.abc import Iterator, Sequence
from math import sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from cxr.base.seeds import stable_hash

Pair = tuple[np.ndarray, np.ndarray]
BLOCK = 64  # replicates in memory at a time; the draws do not depend on this number


def draw_weights(subjects: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks int64 (<= BLOCK, subjects) of how often each patient is drawn, with one row per replicate."""
    generator = np.random.default_rng(stable_hash("bootstrap", seed))
    chances = np.full(subjects, 1 / subjects) if subjects else np.empty(0)
    for first in range(0, replicates, BLOCK):
        rows = min(BLOCK, replicates - first)
        yield generator.multinomial(subjects, chances, size=rows)


def sums_by_subject(subject: np.ndarray, subjects: int, values: np.ndarray) -> np.ndarray:
    """Return the sums of ``values`` (N, K) per patient, float64 (subjects, K). ``subject`` (N,): each row's patient."""
    sums = np.zeros((subjects, values.shape[1]))
    np.add.at(sums, subject, values)
    return sums


def replicate_sums(sums: np.ndarray, replicates: int, seed: int) -> np.ndarray:
    """Return the sums of R replicates, float64 (R, K), from sums per patient (subjects, K). R is 0 without patients."""
    rows = [draw_counts @ sums for draw_counts in draw_weights(len(sums), replicates, seed)] if len(sums) else []
    return np.concatenate(rows) if rows else np.zeros((0, sums.shape[1]))


def _replicate_ratios(numerators: np.ndarray, denominators: np.ndarray, replicates: int, seed: int) -> np.ndarray:
    """Return the ratios of all replicates, float64 (R, K); NaN where a denominator is 0."""
    ratios = [np.zeros((0, numerators.shape[1]))]
    for draw_counts in draw_weights(len(numerators), replicates if len(numerators) else 0, seed):
        below = draw_counts @ denominators
        ratios.append(np.divide(draw_counts @ numerators, below, out=np.full(below.shape, np.nan), where=below > 0))
    return np.concatenate(ratios)


def percentile_ends(table: np.ndarray, level: float) -> Pair:
    """Return (low, high), both (K,): percentile intervals of coverage ``level`` of replicates (R, K), NaN ignored."""
    bounds, has_value = np.full((2, table.shape[1]), np.nan), ~np.isnan(table).all(axis=0)
    bounds[:, has_value] = np.nanquantile(table[:, has_value], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return bounds[0], bounds[1]


def difference_intervals(first: Pair, second: Pair, *, replicates: int, level: float, seed: int) -> Pair:
    """Return (low, high), float64 (K,) each: the ends of the intervals of K differences of ratios, first - second.

    ``first`` and ``second`` are (numerators, denominators): sums per patient (subjects, K), of the same patients in the
    same order. A replicate draws the same patients for both, so that common variation cancels out.
    """
    first_ratios, second_ratios = (_replicate_ratios(*side, replicates, seed) for side in (first, second))
    return percentile_ends(first_ratios - second_ratios, level)


def ratio_intervals(
    numerators: np.ndarray, denominators: np.ndarray, *, replicates: int, level: float, seed: int
) -> Pair:
    """Return the ends (low, high) of the intervals of K ratios, both float64 (K,).

    ``numerators`` and ``denominators``: sums per patient (subjects, K). Replicates with a denominator of 0 are
    excluded; the ends are NaN if no replicate remains.
    """
    return percentile_ends(_replicate_ratios(numerators, denominators, replicates, seed), level)


def resample_sums(subjects: Sequence[str], values: np.ndarray, *, replicates: int, seed: int) -> Pair:
    """Return (sums of ``values`` (N, S) over all rows, float64 (S,); sums over the rows of each replicate, (R, S)).

    ``subjects`` (N,): patient of each row. :func:`percentile_ends` gives the interval of any score that is a function
    of these sums. Calls with the same patients and the same ``seed`` use the same draws.
    """
    values = np.asarray(values, np.float64)
    names, place = np.unique(np.asarray(subjects, str), return_inverse=True)
    return values.sum(axis=0), replicate_sums(sums_by_subject(place, len(names), values), replicates, seed)


class Rate(NamedTuple):
    """A rate and the ends of its interval, 0 to 1."""

    rate: float
    low: float
    high: float


def wilson_interval(part: int, total: int, level: float) -> Rate | None:
    """Return the rate part / total with Wilson's interval (1927) for independent trials; None if ``total`` is 0."""
    if not total:
        return None
    rate, z = part / total, NormalDist().inv_cdf((1 + level) / 2)
    middle, shrink = rate + z * z / (2 * total), 1 + z * z / total
    half = z * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    # at the rates 0 and 1, the end equals the rate, which rounding would miss
    low = 0.0 if part == 0 else (middle - half) / shrink
    high = 1.0 if part == total else (middle + half) / shrink
    return Rate(rate, low, high)
