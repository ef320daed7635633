"""Agreement among raters who each answered yes or no for the same units.

With r raters, n units and k_i yes answers for unit i, the fraction of agreeing pairs of raters is

    p_a = mean of (k_i (k_i - 1) + (r - k_i) (r - k_i - 1)) / (r (r - 1)),  and  p = mean of k_i / r.

Fleiss' kappa (1971) takes p^2 + (1 - p)^2 as the chance agreement, Gwet's AC1 (2008) takes 2 p (1 - p); each is
(p_a - chance) / (1 - chance). Where nearly all units are accepted, kappa falls to 0 or below however well the raters
agree; AC1 does not (Gwet 2008).
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns
from cxr.metrics.intervals import draw_weights, percentile_ends, sums_by_subject


def agreement_columns(by: str) -> Columns:
    """Return the columns of both coefficients and their intervals. ``by``: resampling unit, for the descriptions."""
    return {
        "kappa": Column(pl.Float64, "Fleiss' kappa; null where it is not defined."),
        "kappa_low": Column(pl.Float64, f"Lower end of its interval{by}."),
        "kappa_high": Column(pl.Float64, "Upper end."),
        "ac1": Column(pl.Float64, "Gwet's AC1; null where it is not defined."),
        "ac1_low": Column(pl.Float64, "Lower end of its interval."),
        "ac1_high": Column(pl.Float64, "Upper end."),
    }


@dataclass(frozen=True)
class Agreement:
    """Agreement on one group of units; undefined values are None."""

    units: int
    unanimous: int
    percent: float | None
    kappa: float | None
    ac1: float | None
    kappa_interval: tuple[float | None, float | None]
    ac1_interval: tuple[float | None, float | None]


def measure_agreement(
    yes: np.ndarray, raters: int, subject: np.ndarray, *, replicates: int, level: float, seed: int
) -> Agreement:
    """Return the agreement on units. ``yes`` int (n,): yes answers of ``raters`` raters; ``subject`` int (n,): patient.

    Intervals are percentiles of a bootstrap over patients. With one rater, or no unit, all values are None.
    """
    nothing = (None, None)
    unanimous = int(((yes == 0) | (yes == raters)).sum())
    if raters < 2 or not len(yes):
        return Agreement(len(yes), unanimous, None, None, None, nothing, nothing)
    pairs = yes * (yes - 1) + (raters - yes) * (raters - yes - 1)
    values = np.stack([pairs / (raters * (raters - 1)), yes / raters, np.ones(len(yes))], axis=1)
    percent, kappa, ac1 = (_none_if_nan(value) for value in _coefficients(values.sum(axis=0)[None])[:, 0])
    _, subject = np.unique(subject, return_inverse=True)
    sums = sums_by_subject(subject, int(subject.max()) + 1, values)
    replicate_values = [_coefficients(weight @ sums) for weight in draw_weights(len(sums), replicates, seed)]
    table = np.concatenate(replicate_values, axis=1) if replicate_values else np.full((3, 0), np.nan)
    of_kappa, of_ac1 = (
        (_none_if_nan(low), _none_if_nan(high)) for low, high in zip(*percentile_ends(table[1:].T, level), strict=True)
    )
    return Agreement(len(yes), unanimous, percent, kappa, ac1, of_kappa, of_ac1)


def _coefficients(sums: np.ndarray) -> np.ndarray:
    """Return (3, m): agreement, kappa and AC1 of m rows of sums (m, 3): agreement, yes answers, units."""
    agreeing, p = sums[:, 0] / sums[:, 2], sums[:, 1] / sums[:, 2]
    coefficients = [agreeing]
    for chance in (p**2 + (1 - p) ** 2, 2 * p * (1 - p)):
        denominator = 1 - chance
        coefficients.append(
            np.divide(agreeing - chance, denominator, out=np.full(p.shape, np.nan), where=denominator > 1e-12)
        )
    return np.stack(coefficients)


def _none_if_nan(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
