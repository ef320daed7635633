"""A rate and its interval."""

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple


class Rate(NamedTuple):
    """A rate and the ends of its interval, 0 to 1."""

    rate: float
    low: float
    high: float


def wilson(part: int, whole: int, level: float) -> Rate | None:
    """Return ``part`` of ``whole`` with Wilson's interval of coverage ``level`` (Wilson 1927); None of nothing.

    It takes the trials for independent of one another.
    """
    if not whole:
        return None
    rate, z = part / whole, NormalDist().inv_cdf((1 + level) / 2)
    middle, shrink = rate + z * z / (2 * whole), 1 + z * z / whole
    half = z * sqrt(rate * (1 - rate) / whole + z * z / (4 * whole * whole))
    # at 0 and 1 the end is the rate itself, which rounding would miss
    low = 0.0 if part == 0 else (middle - half) / shrink
    high = 1.0 if part == whole else (middle + half) / shrink
    return Rate(rate, low, high)
