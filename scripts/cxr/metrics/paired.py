"""Comparing two detectors on the same images, with the same bootstrap draws for both.

A draw gives how often each image counts. Patients are drawn with replacement; an image counts as often as its patient.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.intervals import draw_weights, percentile_ends


class Difference(NamedTuple):
    """A difference of two scores, the ends of its interval, and the fraction of draws below 0 (0 counts half)."""

    value: float
    low: float
    high: float
    below: float


def draw_patient_weights(patient: np.ndarray, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yield how often each image counts, int32 (<= 64, images), in blocks with one row per replicate.

    ``patient`` (images,): patient of each image. The draws depend only on the sorted patients and the seed.
    """
    names, place = np.unique(patient, return_inverse=True)
    for draw_counts in draw_weights(len(names), replicates, seed):
        yield np.take(draw_counts.astype(np.int32), place, axis=1)


def draw_images(strata: np.ndarray, replicates: int, seed: int) -> np.ndarray:
    """Draw images with replacement within each stratum. Return how often each counts, int64 (replicates, images)."""
    draw_counts = np.zeros((replicates, len(strata)), np.int64)
    for number, stratum in enumerate(np.unique(strata) if replicates else ()):
        members = np.flatnonzero(strata == stratum)
        draw_counts[:, members] = np.concatenate(list(draw_weights(len(members), replicates, seed + number)))
    return draw_counts


def compare_replicates(value: float, first: np.ndarray, second: np.ndarray, level: float) -> Difference:
    """Return the difference ``value`` of two scores, with an interval of coverage ``level`` and the fraction of draws
    below 0. Both are computed from paired bootstrap replicates (R,) of the ``first`` and the ``second`` score."""
    gap = (first - second)[:, None]
    low, high = percentile_ends(gap, level)
    finite_gaps = gap[~np.isnan(gap)]
    below = float(((finite_gaps < 0) + 0.5 * (finite_gaps == 0)).mean()) if len(finite_gaps) else np.nan
    return Difference(value, float(low[0]), float(high[0]), below)


def adjust_holm(p: Sequence[float]) -> np.ndarray:
    """Return the p-values (N,) of several tests, adjusted by Holm's method. A NaN, which means no test, stays NaN."""
    values = np.asarray(p, np.float64)
    adjusted = np.full(len(values), np.nan)
    tests = np.flatnonzero(~np.isnan(values))
    order = tests[np.argsort(values[tests], kind="stable")]
    scaled = values[order] * (len(order) - np.arange(len(order)))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def wilcoxon_on_replicates(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test on paired bootstrap replicates (R,), as SemiSynCXR does.

    It is not a valid test of the detectors: replicates of the observed difference are not independent samples. Without
    a true difference, it rejects in nearly half of all experiments. NaN if all pairs are equal.
    """
    from scipy.stats import wilcoxon

    gap = (first - second)[~np.isnan(first - second)]
    return float(wilcoxon(gap).pvalue) if np.any(gap) else np.nan
