"""A rate and its interval."""

from math import sqrt
from statistics import NormalDist
from typing import NamedTuple


class Rate(NamedTuple):
    """A rate and the ends of its interval, 0 to 1."""

    rate: float
    low: float
    high: float


def wilson(part: int, total: int, level: float) -> Rate | None:
    """Return ``part`` of ``total`` with Wilson's interval of coverage ``level`` (Wilson 1927); None of nothing.

    It takes the trials for independent of one another.
    """
    if not total:
        return None
    rate, z = part / total, NormalDist().inv_cdf((1 + level) / 2)
    middle, shrink = rate + z * z / (2 * total), 1 + z * z / total
    half = z * sqrt(rate * (1 - rate) / total + z * z / (4 * total * total))
    # at 0 and 1 the end is the rate itself, which rounding would miss
    low = 0.0 if part == 0 else (middle - half) / shrink
    high = 1.0 if part == total else (middle + half) / shrink
    return Rate(rate, low, high)
