"""Thresholds as exact fractions, so that a ratio that equals a threshold reaches it (Tables 7 and 8).

A float means the decimal number that Python prints. So 0.1 is one tenth, not the nearest binary number.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import ceil
from typing import NamedTuple

import numpy as np

EDEMA, GENERAL = "edema", "general"  # the two parts of a threshold set (Table 7)


def threshold_part(target: str) -> str:
    """Return the part of a threshold set that applies to a lesion type, "edema" or "general"."""
    return EDEMA if target == EDEMA else GENERAL


@cache
def exact_fraction(share: float) -> Fraction:
    """Return the decimal number that Python prints for a float as an exact fraction, such as 1/10 for 0.1."""
    return Fraction(Decimal(repr(share)))


def grey_level(share: float) -> int:
    """Return the smallest grey level (0 to 255) of at least ``share`` x 255: 26 for .10, 13 for .05, 3 for .01."""
    return ceil(255 * exact_fraction(share))


@dataclass(frozen=True)
class Thresholds:
    """The five thresholds of Algorithm 1."""

    level: int  # Minimum grey level of an anomalous pixel (tau_ano)
    anatomy: Fraction
    conf: float
    signal: Fraction
    size: Fraction

    @classmethod
    def from_settings(cls, values: dict[str, float]) -> "Thresholds":
        """Return the thresholds made from the floats ``ano``, ``anatomy``, ``conf``, ``signal`` and ``size``."""
        anatomy, signal, size = (exact_fraction(values[name]) for name in ("anatomy", "signal", "size"))
        return cls(grey_level(values["ano"]), anatomy, values["conf"], signal, size)


@dataclass(frozen=True)
class ThresholdSet:
    """The thresholds of edema, and those of all other lesion types (Table 7)."""

    general: Thresholds
    edema: Thresholds

    @classmethod
    def from_settings(cls, values: dict[str, dict[str, float]]) -> "ThresholdSet":
        """Return the set made from ``{"general": {threshold: float}, "edema": {threshold: float}}``."""
        return cls(Thresholds.from_settings(values[GENERAL]), Thresholds.from_settings(values[EDEMA]))

    @property
    def smallest_level(self) -> int:
        """The lower of the two grey levels at which an anomaly map is thresholded."""
        return min(self.general.level, self.edema.level)

    def for_target(self, target: str) -> Thresholds:
        """Return the thresholds of a lesion type."""
        return self.edema if threshold_part(target) == EDEMA else self.general


class Ratio(NamedTuple):
    """Ratios ``part`` / ``total`` of pixel counts, integers of one shape. A ratio is 0 where ``total`` is 0."""

    part: np.ndarray
    total: np.ndarray

    def to_fractions(self) -> list[Fraction]:
        """Return the ratios, which must be one-dimensional, as exact fractions."""
        pairs = zip(self.part.tolist(), self.total.tolist(), strict=True)
        return [Fraction(part, total) if total else Fraction(0) for part, total in pairs]


def is_at_least(part: np.ndarray, total: np.ndarray, share: Fraction) -> np.ndarray:
    """Return whether each :class:`Ratio` ``part`` / ``total`` is at least ``share``, compared without rounding."""
    part, total = np.asarray(part, np.int64), np.asarray(total, np.int64)
    top, bottom = share.numerator, share.denominator
    if max(top, bottom) * int(total.max(initial=1)) >= 2**63:
        part, total = part.astype(object), total.astype(object)
    return np.asarray((part * bottom >= top * total) & ((total > 0) | (top <= 0)), bool)
