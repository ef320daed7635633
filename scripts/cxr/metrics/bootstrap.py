"""Bootstrap percentile intervals that resample patients, because pairs of one patient are not independent.

A metric is a ratio of two sums over patients (correct / asked, IoU / pairs, I / U). A replicate draws as many patients
as there are, with replacement, so its sums are the patients' sums weighted by how often each was drawn.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from cxr.base.seeds import stable_hash

BLOCK = 64
"""Number of replicates whose weights are in memory at a time; the draws do not depend on it."""


def weights(subjects: int, replicates: int, seed: int) -> Iterator[np.ndarray]:
    """Yield int64 (<= BLOCK, subjects) counts of how often each patient was drawn, ``replicates`` rows in all."""
    generator = np.random.default_rng(stable_hash("bootstrap", seed))
    chances = np.full(subjects, 1 / subjects) if subjects else np.empty(0)
    for first in range(0, replicates, BLOCK):
        rows = min(BLOCK, replicates - first)
        yield generator.multinomial(subjects, chances, size=rows)


def sums_of(subject: np.ndarray, subjects: int, values: np.ndarray) -> np.ndarray:
    """Return float64 (subjects, K): each patient's sums of ``values`` (N, K); ``subject`` (N,): each row's patient."""
    sums = np.zeros((subjects, values.shape[1]))
    np.add.at(sums, subject, values)
    return sums


def _ratios(numerators: np.ndarray, denominators: np.ndarray, replicates: int, seed: int) -> np.ndarray:
    """Return the ratios of all replicates, float64 (replicates, K), NaN where a replicate has no denominator."""
    ratios = []
    for draw_counts in weights(len(numerators), replicates, seed):
        below = draw_counts @ denominators
        ratios.append(np.divide(draw_counts @ numerators, below, out=np.full(below.shape, np.nan), where=below > 0))
    return np.concatenate(ratios)


def ends(table: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper ends, float64 (K,) each, of K columns of replicates (R, K); NaN is ignored."""
    bounds = np.full((2, table.shape[1]), np.nan)
    has_value = ~np.isnan(table).all(axis=0)
    bounds[:, has_value] = np.nanquantile(table[:, has_value], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return bounds[0], bounds[1]


def differences(
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
    *,
    replicates: int,
    level: float,
    seed: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends, float64 (K,) each, of the intervals of K differences of ratios, first less second.

    Each is (numerators, denominators) per patient, (subjects, K), with the same patients in the same order. A replicate
    draws the patients once for both, so that variation common to both cancels out.
    """
    subjects, ratios = first[0].shape
    if not replicates or not subjects or not ratios:
        return np.full(ratios, np.nan), np.full(ratios, np.nan)
    return ends(_ratios(*first, replicates, seed) - _ratios(*second, replicates, seed), level)


def intervals(
    numerators: np.ndarray, denominators: np.ndarray, *, replicates: int, level: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper ends, float64 (K,) each, of the intervals of K ratios.

    ``numerators`` and ``denominators``: sums per patient, (subjects, K). A replicate whose denominator is 0 is left
    out. The ends are NaN if all replicates are left out, or with no replicates.
    """
    subjects, ratios = numerators.shape
    if not replicates or not subjects or not ratios:
        return np.full(ratios, np.nan), np.full(ratios, np.nan)
    return ends(_ratios(numerators, denominators, replicates, seed), level)


def summed(subjects: Sequence[str], values: np.ndarray, *, replicates: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums of ``values`` (N, S) over all rows, float64 (S,), and over the rows of each replicate, (R, S).

    ``subjects`` (N,): each row's patient. A score that is any function of such sums has its interval from
    :func:`ends`, and scores of the same rows share their draws.
    """
    values = np.asarray(values, np.float64)
    names, place = np.unique(np.asarray(subjects, str), return_inverse=True)
    sums = sums_of(place, len(names), values)
    rows = [draw_counts @ sums for draw_counts in weights(len(names), replicates, seed)] if len(names) else []
    return values.sum(axis=0), np.concatenate(rows) if rows else np.zeros((0, values.shape[1]))
