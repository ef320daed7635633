"""Distances between two samples of features: Fréchet (FID) and kernel (KID).

FID compares means and covariances and is too high in small samples. KID is unbiased, and may be negative.
"""

import numpy as np

MIN_SAMPLES_PER_DIMENSION = 2  # minimum number of samples per dimension for a meaningful FID
BLOCK = 256  # kernel rows in memory at a time


def frechet(means: tuple[np.ndarray, np.ndarray], covariances: tuple[np.ndarray, np.ndarray]) -> float:
    """Return |m1 - m2|^2 + tr(A + B - 2 (A^1/2 B A^1/2)^1/2) for means m, (D,), and ``covariances`` A and B, (D, D)."""
    first, second = covariances
    values, vectors = np.linalg.eigh(first)
    root = (vectors * np.sqrt(np.clip(values, 0, None))) @ vectors.T
    shared = np.sqrt(np.clip(np.linalg.eigvalsh(root @ second @ root), 0, None)).sum()
    return float(((means[0] - means[1]) ** 2).sum() + np.trace(first) + np.trace(second) - 2 * shared)


def fid(first: np.ndarray, second: np.ndarray, *, small: bool = False) -> float:
    """Return the Fréchet distance of samples (N, D) and (M, D). Raises ValueError if N or M < 2 D, unless ``small``."""
    size, dimensions = min(len(first), len(second)), first.shape[1]
    least = MIN_SAMPLES_PER_DIMENSION * dimensions
    if size < least and not small:
        raise ValueError(f"FID of {dimensions} features needs {least} samples per set, but one has {size}: add some")
    means = first.mean(axis=0), second.mean(axis=0)
    return frechet(means, (np.cov(first.T).reshape(dimensions, -1), np.cov(second.T).reshape(dimensions, -1)))


def kid_kernel(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return KID's kernel (x y / D + 1)^3 of rows (N, D) and (M, D), float64 (N, M)."""
    return (x.astype(np.float64) @ y.astype(np.float64).T / x.shape[1] + 1) ** 3


def kid(first: np.ndarray, second: np.ndarray) -> float:
    """Return the unbiased squared maximum mean discrepancy of (N, D) and (M, D). Raises ValueError if N or M < 2."""
    if min(len(first), len(second)) < 2:
        raise ValueError("KID needs at least two samples in each set: use more images")
    return float(_mean_within(first) + _mean_within(second) - 2 * kid_kernel(first, second).mean())


def kid_of_subsets(first: np.ndarray, second: np.ndarray, membership: np.ndarray) -> np.ndarray:
    """Return the :func:`kid` between each of R subsets of ``first`` (N, D) and all of ``second`` (M, D), float64 (R,).

    ``membership`` bool (R, N): the rows of each subset. NaN for a subset of fewer than two rows. All subsets share
    one computation of the kernel, in blocks of rows.
    """
    membership = membership.astype(np.float64)
    inside, across = np.zeros(len(membership)), np.zeros(len(membership))
    for start in range(0, len(first), BLOCK):
        rows, weight = first[start : start + BLOCK], membership[:, start : start + BLOCK]
        table = kid_kernel(rows, first)
        table[np.arange(len(rows)), start + np.arange(len(rows))] = 0
        inside += ((weight @ table) * membership).sum(axis=1)
        across += weight @ kid_kernel(rows, second).mean(axis=1)
    size = membership.sum(axis=1)
    enough = (size > 1) & (len(second) > 1)
    pairs, size = np.where(enough, size * (size - 1), 1.0), np.where(enough, size, 1.0)
    return np.where(enough, inside / pairs + _mean_within(second) - 2 * across / size, np.nan)


def _mean_within(sample: np.ndarray) -> float:
    """Return the mean of :func:`kid_kernel` over all pairs of different rows; 0 for a single row."""
    total = 0.0
    for start in range(0, len(sample), BLOCK):
        table = kid_kernel(sample[start : start + BLOCK], sample)
        total += float(table.sum() - np.trace(table, offset=start))
    return total / max(1, len(sample) * (len(sample) - 1))
