"""Thresholds as exact fractions, so that ties are decided exactly (ils.md sections 4 and 5, Tables 7 and 8).

A share means the decimal that its shortest text shows: 0.1 is one tenth, not the nearest binary number.
"""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache
from math import ceil
from typing import NamedTuple

import numpy as np

EDEMA = "edema"
GENERAL = "general"
"""The two parts of a threshold set (Table 7)."""


def threshold_part(target: str) -> str:
    """Return the part of a threshold set that holds for a lesion type."""
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
    """The five thresholds of Algorithm 1, ready to compare."""

    level: int
    anatomy: Fraction
    conf: float
    signal: Fraction
    size: Fraction

    @classmethod
    def of(cls, values: dict[str, float]) -> "Thresholds":
        """Make the thresholds from floats ``ano``, ``anatomy``, ``conf``, ``signal``, ``size``."""
        return cls(
            grey_level(values["ano"]),
            exact_fraction(values["anatomy"]),
            values["conf"],
            exact_fraction(values["signal"]),
            exact_fraction(values["size"]),
        )


@dataclass(frozen=True)
class ThresholdSet:
    """The thresholds of one data set: those of edema and those of every other target (Table 7)."""

    general: Thresholds
    edema: Thresholds

    @classmethod
    def of(cls, values: dict[str, dict[str, float]]) -> "ThresholdSet":
        """Make the set from builtins ``{"general": {...}, "edema": {...}}``."""
        return cls(Thresholds.of(values[GENERAL]), Thresholds.of(values[EDEMA]))

    @property
    def smallest_level(self) -> int:
        """The lowest grey level of any target's threshold."""
        return min(self.general.level, self.edema.level)

    def for_target(self, target: str) -> Thresholds:
        """Return the thresholds that hold for a lesion type."""
        return self.edema if threshold_part(target) == EDEMA else self.general


class Ratio(NamedTuple):
    """Ratios of pixel counts (integers of one shape); a ratio is 0 where ``whole`` is 0."""

    part: np.ndarray
    whole: np.ndarray

    def exact(self) -> list[Fraction]:
        """Return one-dimensional ratios as the fractions that :func:`is_at_least` compares."""
        pairs = zip(self.part.tolist(), self.whole.tolist(), strict=True)
        return [Fraction(part, total) if total else Fraction(0) for part, total in pairs]


def is_at_least(part: np.ndarray, total: np.ndarray, share: Fraction) -> np.ndarray:
    """Return part / whole >= share, element by element, without rounding; both arrays are those of a :class:`Ratio`."""
    part, total = np.asarray(part, np.int64), np.asarray(total, np.int64)
    top, bottom = share.numerator, share.denominator
    if max(top, bottom) * int(total.max(initial=1)) >= 2**63:
        part, total = part.astype(object), total.astype(object)
    return np.asarray((part * bottom >= top * total) & ((total > 0) | (top <= 0)), bool)
