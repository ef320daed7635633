"""Thresholds as exact fractions, so that ties are decided exactly (Tables 7 and 8).

A float stands for the decimal it prints as: 0.1 is one tenth, not the nearest binary number.
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
    """Return which part of a threshold set applies to a lesion type."""
    return EDEMA if target == EDEMA else GENERAL


@cache
def exact_fraction(share: float) -> Fraction:
    """Return the decimal that ``share`` is written as: ``exact(0.1) == Fraction(1, 10)``."""
    return Fraction(Decimal(repr(share)))


def grey_level(share: float) -> int:
    """Return the smallest grey level (0..255) that reaches ``share`` of 255: .10 -> 26, .05 -> 13, .01 -> 3."""
    return ceil(255 * exact_fraction(share))


@dataclass(frozen=True)
class Thresholds:
    """The five thresholds of Algorithm 1."""

    level: int
    anatomy: Fraction
    conf: float
    signal: Fraction
    size: Fraction

    @classmethod
    def from_settings(cls, values: dict[str, float]) -> "Thresholds":
        """Make the thresholds from floats ``ano``, ``anatomy``, ``conf``, ``signal``, ``size``."""
        anatomy, signal, size = (exact_fraction(values[name]) for name in ("anatomy", "signal", "size"))
        return cls(grey_level(values["ano"]), anatomy, values["conf"], signal, size)


@dataclass(frozen=True)
class ThresholdSet:
    """The thresholds of one data set: for edema, and for every other target (Table 7)."""

    general: Thresholds
    edema: Thresholds

    @classmethod
    def from_settings(cls, values: dict[str, dict[str, float]]) -> "ThresholdSet":
        """Make the set from ``{"general": {...}, "edema": {...}}``."""
        return cls(Thresholds.from_settings(values[GENERAL]), Thresholds.from_settings(values[EDEMA]))

    @property
    def smallest_level(self) -> int:
        """The lowest grey level of any target's threshold."""
        return min(self.general.level, self.edema.level)

    def for_target(self, target: str) -> Thresholds:
        """Return the thresholds of a lesion type."""
        return self.edema if threshold_part(target) == EDEMA else self.general


class Ratio(NamedTuple):
    """Ratios of pixel counts (integers of one shape); a ratio is 0 where ``total`` is 0."""

    part: np.ndarray
    total: np.ndarray

    def to_fractions(self) -> list[Fraction]:
        """Return one-dimensional ratios as the exact fractions that :func:`is_at_least` compares."""
        pairs = zip(self.part.tolist(), self.total.tolist(), strict=True)
        return [Fraction(part, total) if total else Fraction(0) for part, total in pairs]


def is_at_least(part: np.ndarray, total: np.ndarray, share: Fraction) -> np.ndarray:
    """Return part / total >= share, element by element, without rounding; both arrays are those of a :class:`Ratio`."""
    part, total = np.asarray(part, np.int64), np.asarray(total, np.int64)
    top, bottom = share.numerator, share.denominator
    if max(top, bottom) * int(total.max(initial=1)) >= 2**63:
        part, total = part.astype(object), total.astype(object)
    return np.asarray((part * bottom >= top * total) & ((total > 0) | (top <= 0)), bool)
