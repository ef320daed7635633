"""Draw from the laws (distributions) of priors within bounds. A law's mass is its probability within the bounds."""

import numpy as np
from scipy import special, stats

from cxr.semisyn.findings.catalogue import CONSTANT, Law

GRID = 2049
"""Number of points at which the marginal law of the first of two values is tabulated within its bounds."""
REACH = 9.0
"""Standard deviations from the mean beyond which a normal law has no mass in float64."""
ROWS_PER_BLOCK = 32
"""Number of rows that are tabulated at once, so that their tables fit into a core's cache."""
CONSTANT_TOLERANCE = 1e-9
"""Percent by which a constant may lie outside its bounds, because these are rounded."""
BETA_LIMIT = 1e6
"""Parameter b above which a beta law is replaced by its limit, the gamma law whose scale is divided by b."""


def scipy_law(law: Law):
    """Return scipy's frozen distribution of a one-dimensional law that is not constant."""
    parameters = dict(law.parameters)
    if law.family == "beta" and parameters["b"] > BETA_LIMIT:
        return stats.gamma(parameters["a"], loc=parameters["loc"], scale=parameters["scale"] / parameters["b"])
    return getattr(stats, law.family)(**parameters)


def draw_within(law: Law, uniforms: np.ndarray, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Draw from a one-dimensional law truncated to [low, high] with ``uniforms`` (N,) in [0, 1). Return the values (N,)
    and the law's mass within the bounds (N,). Where the mass is 0, the value is ``low``."""
    uniforms, low, high = np.broadcast_arrays(*(np.asarray(array, np.float64) for array in (uniforms, low, high)))
    if law.family == CONSTANT:
        value = np.full(low.shape, law.parameters["value"])
        return value, ((low <= value + CONSTANT_TOLERANCE) & (value - CONSTANT_TOLERANCE <= high)).astype(np.float64)
    distribution = scipy_law(law)
    value, mass = np.array(low), np.zeros(low.shape)
    # the upper tail uses the survival function, because the distribution function rounds to 1 there
    upper = low > distribution.median()
    for tail, rows in ((False, ~upper & (low < high)), (True, upper & (low < high))):
        if not rows.any():
            continue
        first, second = (
            (distribution.sf(high[rows]), distribution.sf(low[rows]))
            if tail
            else (distribution.cdf(low[rows]), distribution.cdf(high[rows]))
        )
        mass[rows] = np.maximum(second - first, 0.0)
        share = second - uniforms[rows] * mass[rows] if tail else first + uniforms[rows] * mass[rows]
        value[rows] = distribution.isf(share) if tail else distribution.ppf(share)
    # clip rounding errors of the inverse
    return np.where(mass > 0, np.clip(value, low, np.maximum(low, high)), low), mass


def draw_pair_within(
    law: Law, uniforms: np.ndarray, low: np.ndarray, high: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Draw from a two-dimensional log-normal law truncated to [low, high], both (N, 2). Return the values (N, 2) and
    the law's mass within the bounds (N,). Where the mass is 0, the values are ``low``. ``uniforms`` (N, 2) give the
    first value from its marginal law, tabulated at :data:`GRID` points, and the second from its conditional law."""
    uniforms, low, high = (np.asarray(array, np.float64) for array in (uniforms, low, high))
    mu, deviation, slope, residual_deviation = _moments(law)
    values, mass = np.array(low), np.zeros(len(low))
    for block in range(0, len(low), ROWS_PER_BLOCK):
        part = slice(block, block + ROWS_PER_BLOCK)
        bottom, top, first, density, cells = _tabulate_margin(law, low[part], high[part], GRID)
        step = first[:, 1] - first[:, 0]
        sums = np.cumsum(cells, axis=1, out=cells)
        mass[part] = np.where((low[part] < high[part]).all(axis=1), sums[:, -1], 0.0)
        # position within the cell, where the density is linear
        target_mass = uniforms[part, 0] * sums[:, -1]
        cell = np.minimum((sums <= target_mass[:, None]).sum(axis=1), GRID - 2)
        rows = np.arange(len(cell))
        remaining_mass = target_mass - np.where(cell > 0, sums[rows, np.maximum(cell - 1, 0)], 0.0)
        # fraction of the cell below which a density that runs from ``start`` to ``end`` has the remaining mass
        start, end = density[rows, cell], density[rows, cell + 1]
        area = np.divide(2 * remaining_mass, step, out=np.zeros_like(remaining_mass), where=step > 0)
        root = start + np.sqrt(np.maximum(start**2 + (end - start) * area, 0.0))
        fraction = np.clip(np.divide(area, root, out=np.zeros_like(area), where=root > 0), 0.0, 1.0)
        z = first[rows, cell] + step * fraction
        second = _draw_conditional(mu[1] + slope * z, residual_deviation, bottom[:, 1], top[:, 1], uniforms[part, 1])
        samples = np.exp(np.stack([mu[0] + deviation * z, second], axis=1))
        samples = np.clip(samples, low[part], np.maximum(low[part], high[part]))
        values[part] = np.where(mass[part, None] > 0, samples, low[part])
    return values, mass


def pair_mass(law: Law, low: np.ndarray, high: np.ndarray, points: int = GRID) -> np.ndarray:
    """Return the mass (N,) of a two-dimensional log-normal law in [low, high], both (N, 2), tabulated at ``points``."""
    *_, cells = _tabulate_margin(law, np.asarray(low, np.float64), np.asarray(high, np.float64), points)
    return np.where((low < high).all(axis=1), cells.sum(axis=1), 0.0)


def _tabulate_margin(law: Law, low: np.ndarray, high: np.ndarray, points: int) -> tuple[np.ndarray, ...]:
    """Tabulate the marginal law of the first value within the bounds. Return the logarithms of the lower and the upper
    bounds (N, 2), the points in standard deviations and the density there (N, points), and the mass of the cells
    between the points (N, points - 1)."""
    mu, deviation, slope, residual_deviation = _moments(law)
    bottom, top = _log(low), _log(np.maximum(high, 0.0))
    start, end = (np.clip((edge[:, 0] - mu[0]) / deviation, -REACH, REACH) for edge in (bottom, top))
    step = np.maximum(end - start, 0.0)[:, None] / (points - 1)
    first = step * np.arange(points)
    first += start[:, None]
    tilted = first * (-slope / residual_deviation)
    # bounds of the second value in deviations of its conditional law; None if all are 0 or below
    ends = (
        None if np.isneginf(edge[:, 1]).all() else np.add(tilted, (edge[:, 1:] - mu[1]) / residual_deviation)
        for edge in (bottom, top)
    )
    density = _normal_mass(*ends, like=first)
    bell = first * first
    bell *= -0.5
    density *= np.exp(bell, out=bell)
    density *= 1 / np.sqrt(2 * np.pi)
    cells = density[:, 1:] + density[:, :-1]
    cells *= 0.5 * step
    return bottom, top, first, density, cells


def _moments(law: Law) -> tuple[np.ndarray, float, float, float]:
    """Return the parameters of the two values' logarithms: means (2,), standard deviation (SD) of the first, slope of
    the second's conditional mean per SD of the first, and conditional SD of the second."""
    sigma = np.array(law.parameters["sigma"])
    deviation = np.sqrt(sigma[0, 0])
    residual_deviation = np.sqrt(sigma[1, 1] - sigma[0, 1] ** 2 / sigma[0, 0])
    return np.array(law.parameters["mu"]), deviation, sigma[0, 1] / deviation, residual_deviation


def _log(values: np.ndarray) -> np.ndarray:
    """Return the logarithms of ``values``, which are minus infinity for values of at most 0."""
    return np.log(values, out=np.full(values.shape, -np.inf), where=values > 0)


def _normal_mass(low: np.ndarray | None, high: np.ndarray | None, like: np.ndarray) -> np.ndarray:
    """Return the standard normal law's mass between bounds, accurate in both tails. A bound None is minus infinity."""
    if high is None:
        return np.zeros(like.shape)
    mass = special.ndtr(high)
    if low is not None:
        flip = low > 0
        mass -= special.ndtr(low)
        mass[flip] = special.ndtr(-low[flip]) - special.ndtr(-high[flip])
        np.maximum(mass, 0.0, out=mass)
    return mass


def _draw_conditional(
    centre: np.ndarray, deviation: float, low: np.ndarray, high: np.ndarray, uniforms: np.ndarray
) -> np.ndarray:
    """Return values drawn from normal laws with the means ``centre`` (N,), truncated to [low, high]."""
    low, high = (low - centre) / deviation, (high - centre) / deviation
    flip = low > 0
    low, high = np.where(flip, -high, low), np.where(flip, -low, high)
    share = np.where(flip, 1 - uniforms, uniforms)
    z = special.ndtri(special.ndtr(low) + share * np.maximum(special.ndtr(high) - special.ndtr(low), 0.0))
    return centre + deviation * np.where(flip, -z, z)
