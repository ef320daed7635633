"""Comparing two detectors on the same images: draws of patients that both share, and what they say.

A draw says how often each image counts. It takes as many patients as there are, with replacement, within each stratum;
an image counts as often as its patient.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.bootstrap import ends, weights


class Difference(NamedTuple):
    """A difference of two scores: its value, the ends of its interval, and the fraction of draws below 0.

    A draw without a difference, NaN, is left out; one of exactly 0 counts half.
    """

    value: float
    low: float
    high: float
    below: float


def patient_draws(patient: np.ndarray, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yield int32 (<= 64, images), ``replicates`` rows in all: how often each image counts.

    ``patient`` (images,): each image's patient. The draws are functions of the sorted patients and the seed.
    """
    names, place = np.unique(patient, return_inverse=True)
    for draw_counts in weights(len(names), replicates, seed):
        yield np.take(draw_counts.astype(np.int32), place, axis=1)


def image_draws(strata: np.ndarray, replicates: int, seed: int) -> np.ndarray:
    """Return int64 (replicates, images): draws of images with replacement within each of the ``strata`` (images,)."""
    draw_counts = np.zeros((replicates, len(strata)), np.int64)
    for number, stratum in enumerate(np.unique(strata)):
        members = np.flatnonzero(strata == stratum)
        rows = list(weights(len(members), replicates, seed + number))
        draw_counts[:, members] = np.concatenate(rows) if rows else 0
    return draw_counts


def difference(value: float, first: np.ndarray, second: np.ndarray, level: float) -> Difference:
    """Return what paired replicates (R,) of two scores say about their difference, first less second.

    ``value``: the difference on the images themselves.
    """
    gap = (first - second)[:, None]
    low, high = ends(gap, level) if len(gap) else (np.array([np.nan]), np.array([np.nan]))
    finite_gaps = gap[~np.isnan(gap)]
    below = float(((finite_gaps < 0) + 0.5 * (finite_gaps == 0)).mean()) if len(finite_gaps) else np.nan
    return Difference(value, float(low[0]), float(high[0]), below)


def holm(p: Sequence[float]) -> np.ndarray:
    """Return Holm's adjusted p-values (N,) of a family of tests; NaN is no test and stays NaN."""
    p = np.asarray(p, np.float64)
    adjusted = np.full(len(p), np.nan)
    tests = np.flatnonzero(~np.isnan(p))
    order = tests[np.argsort(p[tests], kind="stable")]
    scaled = p[order] * (len(order) - np.arange(len(order)))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def wilcoxon_on_replicates(first: np.ndarray, second: np.ndarray) -> float:
    """Return the two-sided p of Wilcoxon's signed-rank test on paired bootstrap replicates (R,), as SemiSynCXR has it.

    It is no test of the detectors: replicates of one observed difference are not samples, and without any difference it
    rejects in nearly half of all experiments. NaN if every pair is equal.
    """
    from scipy.stats import wilcoxon

    gap = (first - second)[~np.isnan(first - second)]
    return float(wilcoxon(gap).pvalue) if np.any(gap) else np.nan
