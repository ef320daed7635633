"""Agreement among raters who answered yes or no for the same units.

With r raters, n units and k_i yes answers for unit i, the fraction of agreeing pairs of raters is

    p_a = mean of (k_i (k_i - 1) + (r - k_i) (r - k_i - 1)) / (r (r - 1)),  and  p = mean of k_i / r.

Both coefficients are (p_a - chance) / (1 - chance). The chance agreement is p^2 + (1 - p)^2 for Fleiss' kappa (1971),
and 2 p (1 - p) for Gwet's AC1 (2008). If nearly all units are accepted, kappa is 0 or less even if raters agree well;
AC1 is not (Gwet 2008).
"""

from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns, interval_columns
from cxr.base.seeds import stable_hash
from cxr.metrics.intervals import percentile_ends, replicate_sums, sums_by_subject


def agreement_columns(by: str) -> Columns:
    """Return the columns of kappa, AC1 and their intervals. ``by``: end of a description, like ", by patients"."""
    return {
        "kappa": Column(pl.Float64, "Fleiss' kappa; null where it is not defined."),
        **interval_columns("kappa", f"its interval{by}"),
        "ac1": Column(pl.Float64, "Gwet's AC1; null where it is not defined."),
        **interval_columns("ac1", "its interval"),
    }


class Agreement(NamedTuple):
    """Agreement on a group of units (rated items), with intervals of kappa and AC1. Undefined values are None."""

    units: int
    unanimous: int
    percent: float | None = None
    kappa: float | None = None
    kappa_low: float | None = None
    kappa_high: float | None = None
    ac1: float | None = None
    ac1_low: float | None = None
    ac1_high: float | None = None

    def rounded(self) -> tuple[float | None, ...]:
        """Return the agreement in percent, and kappa and AC1 with their intervals, all rounded for tables."""
        percent, *statistics = self[2:]
        rounded = (None if value is None else round(value, 4) for value in statistics)
        return (None if percent is None else round(100 * percent, 3), *rounded)


def measure_agreement(
    yes: np.ndarray, raters: int, subject: np.ndarray, *, replicates: int, level: float, seed: int
) -> Agreement:
    """Return the agreement on n rated items. ``yes`` int (n,): yes answers to each; ``subject`` int (n,): its patient.

    Intervals are percentiles of a bootstrap over patients. If there is no item or fewer than two raters, agreement,
    kappa and AC1 are None.
    """
    unanimous = int(((yes == 0) | (yes == raters)).sum())
    if raters < 2 or not len(yes):
        return Agreement(len(yes), unanimous)
    pairs = yes * (yes - 1) + (raters - yes) * (raters - yes - 1)
    values = np.stack([pairs / (raters * (raters - 1)), yes / raters, np.ones(len(yes))], axis=1)
    percent, *coefficients = _coefficients(values.sum(axis=0)[None])[:, 0]
    _, subject = np.unique(subject, return_inverse=True)
    sums = sums_by_subject(subject, int(subject.max()) + 1, values)
    ends = percentile_ends(_coefficients(replicate_sums(sums, replicates, seed))[1:].T, level)
    statistics = (percent, *(number for row in zip(coefficients, *ends, strict=True) for number in row))
    return Agreement(len(yes), unanimous, *(None if np.isnan(value) else float(value) for value in statistics))


def _coefficients(sums: np.ndarray) -> np.ndarray:
    """Return agreement, kappa and AC1, (3, m). ``sums`` (m, 3): summed agreement, summed yes rates, units."""
    agreeing, p = sums[:, 0] / sums[:, 2], sums[:, 1] / sums[:, 2]
    coefficients = [agreeing]
    for chance in (p**2 + (1 - p) ** 2, 2 * p * (1 - p)):
        undefined, below = np.full(p.shape, np.nan), 1 - chance
        coefficients.append(np.divide(agreeing - chance, below, out=undefined, where=below > 1e-12))
    return np.stack(coefficients)


def log_linear_z(counts: np.ndarray, totals: np.ndarray | int, weight: float = 0.5) -> np.ndarray:
    """Return the normal quantiles, float64 (n,), of the rates counts / totals. They are finite even for rates 0 and 1.

    The log-linear correction (Hautus 1995) adds ``weight`` to each count and twice as much to each total.
    """
    return np.array([NormalDist().inv_cdf(rate) for rate in (counts + weight) / (totals + 2 * weight)])


class Estimate(NamedTuple):
    """A value with the ends of its interval; None where it is not defined."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


def measure_reliability(
    hits: int, items: int, false_alarms: int, decoys: int, *, replicates: int, level: float, seed: int
) -> tuple[Estimate, Estimate]:
    """Return a rater's d' and corrected acceptance, 0 to 1, from yes answers to items and decoys (wrong on purpose).

    d' is the difference of the normal quantiles of both rates (:func:`log_linear_z`). The correction adds one yes and
    one no in total, divided between items and decoys in proportion, so that d' is 0 for a rater who accepts everything.

    The corrected acceptance p assumes that a fraction p of the items is right, and that the rater accepts every right
    item, and a wrong item as often as a decoy, at the rate f. The rate of acceptance is then a = p + (1 - p) f, so p =
    (a - f) / (1 - f), at least 0. It is undefined if all decoys are accepted. Both values are undefined without items
    or decoys.

    Intervals are percentiles of a bootstrap over items and decoys. It draws from rates with half a count added, so that
    rates of 0 and 1 vary too; a replicate in which all decoys are accepted counts as p = 0.
    """
    if not (items and decoys):
        return Estimate(), Estimate()
    generator = np.random.default_rng(stable_hash("decoys", seed))
    counts = [
        np.append(count, generator.binomial(total, (count + 0.5) / (total + 1), replicates))
        for count, total in ((hits, items), (false_alarms, decoys))
    ]
    a, f = counts[0] / items, counts[1] / decoys
    corrected = np.divide(a - f, 1 - f, out=np.zeros(len(f)), where=f < 1).clip(min=0)
    trials = items + decoys
    z_hits, z_false_alarms = (log_linear_z(rate * trials, trials, weight=1) for rate in (a, f))
    table = np.stack([z_hits - z_false_alarms, corrected], axis=1)
    (d_prime, acceptance), ends = table[0].tolist(), np.stack(percentile_ends(table[1:], level), axis=1).tolist()
    return Estimate(d_prime, *ends[0]), Estimate() if false_alarms == decoys else Estimate(acceptance, *ends[1])
