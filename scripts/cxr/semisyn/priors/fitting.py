"""Fit priors to experts' boxes: test independence, choose families, set limits, and test the symmetry of the lungs."""

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, stats

from cxr.semisyn.findings.boxes import size_bounds
from cxr.semisyn.findings.catalogue import CONSTANT, PAIR, RATIO, SHAPES, SINGLES, Law, Prior, WrongValue, parse_law
from cxr.semisyn.findings.laws import pair_mass

NUMBERS_BY_ELEMENT = {"center": ("cx", "cy"), "size": ("w", "h")}
"""{element of a prior of boxes in a lung: names of its two numbers}."""
ALPHA, BINS = 0.05, 50
"""Significance level of the independence test, and bins of the histogram with which densities are compared."""
OVERSHOOT_PERCENTILE = 2.5
"""Percentile of the boxes' distances to the lung's edges that becomes the prior's limit ``overshoot``."""
POINTS = 129
"""Number of points of the table from which a fit computes a law's mass within bounds."""


@dataclass(frozen=True)
class Fit:
    """One fit of one element of a prior. n: number of samples; rss: see :func:`rss_of`; spearman_p: p-value of the
    independence test (both None if not computed); is_chosen: whether the law enters the prior."""

    element: str
    law: Law
    n: int
    rss: float | None
    spearman_p: float | None
    is_chosen: bool


def rss_of(law: object, values: np.ndarray) -> float:
    """Return the sum over bins of the squared difference of the density of ``law`` and the histogram of values."""
    heights, edges = np.histogram(values, bins=BINS, density=True)
    return float(((law.pdf((edges[1:] + edges[:-1]) / 2) - heights) ** 2).sum())


def fit_single(values: np.ndarray, families: Sequence[str] = tuple(SHAPES)) -> list[tuple[Law, float]]:
    """Fit families to values (N,) by maximum likelihood. Return (law, rss) of each successful fit, lowest rss first."""
    fits = []
    for family in families:
        distribution = getattr(stats, family)
        names = (*SHAPES[family], "loc", "scale")
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                parameters = dict(zip(names, map(float, distribution.fit(values)), strict=True))
                law, rss = parse_law({"family": family} | parameters), rss_of(distribution(**parameters), values)
            except (WrongValue, stats.FitError, ValueError, RuntimeError, FloatingPointError):
                continue
        if math.isfinite(rss):
            fits.append((law, rss))
    return sorted(fits, key=lambda pair: pair[1])


def fit_pair(values: np.ndarray) -> Law:
    """Return the two-dimensional log-normal law of values (N, 2) above 0. Raise WrongValue if they lie on a line."""
    logs = np.log(values)
    return parse_law({"family": PAIR, "mu": logs.mean(axis=0).tolist(), "sigma": np.cov(logs.T).tolist()})


def fit_truncated(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> Law:
    """Return the two-dimensional log-normal law with the largest likelihood for values (N, 2), each drawn from
    the law within bounds (N, 2). Values outside their bounds are skipped. Raise WrongValue like :func:`fit_pair`."""
    inside = ((values >= low) & (values <= high)).all(axis=1)
    values, low, high = values[inside], low[inside], high[inside]
    start = fit_pair(values)
    logs = np.log(values)

    def law_at(numbers: np.ndarray) -> tuple[Law, np.ndarray]:
        root = np.array([[math.exp(numbers[2]), 0.0], [numbers[3], math.exp(numbers[4])]])
        return Law(PAIR, {"mu": numbers[:2].tolist(), "sigma": (root @ root.T).tolist()}), root

    def loss(numbers: np.ndarray) -> float:
        law, root = law_at(numbers)
        apart = np.linalg.solve(root, (logs - numbers[:2]).T)
        mass = np.maximum(pair_mass(law, low, high, POINTS), np.finfo(float).tiny)
        return float((0.5 * (apart**2).sum(axis=0) + numbers[2] + numbers[4] + np.log(mass)).sum())

    root = np.linalg.cholesky(np.array(start.parameters["sigma"]))
    first = np.array([*start.parameters["mu"], math.log(root[0, 0]), root[1, 0], math.log(root[1, 1])])
    options = {"maxiter": 1000, "xatol": 1e-3, "fatol": 1e-3}
    optimum = optimize.minimize(loss, first, method="Nelder-Mead", options=options)
    return parse_law(law_at(optimum.x)[0].to_dict())


def _fit_element(element: str, samples: np.ndarray, present_laws: Mapping[str, Law]) -> list[Fit]:
    """Return the fits of an element (center or size) to samples (N, 2): one two-dimensional fit if the two numbers
    depend on each other, otherwise fits of each number. A constant in ``present_laws`` stays."""
    constants = {name: law for name, law in present_laws.items() if name in SINGLES[element] and law.family == CONSTANT}
    p = None
    if not constants:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", stats.ConstantInputWarning)
            p = float(stats.spearmanr(*samples.T).pvalue)
        p = 1.0 if math.isnan(p) else p  # NaN for a constant sample
    positive = samples[(samples > 0).all(axis=1)]
    if p is not None and p < ALPHA and len(positive) > 2:
        try:
            return [Fit(element, fit_pair(positive), len(positive), None, p, True)]
        except WrongValue:
            pass  # the samples lie on a line: fit each number alone
    fits = []
    for number, name in enumerate(SINGLES[element]):
        if name in constants:
            fits.append(Fit(name, constants[name], len(samples), None, None, True))
        else:
            fits += _fit_number(name, samples[:, number], p)
    return fits


def _fit_number(name: str, values: np.ndarray, p: float | None) -> list[Fit]:
    fits = enumerate(fit_single(values))
    return [Fit(name, law, len(values), rss, p, place == 0) for place, (law, rss) in fits]


def fit_prior(prior: Prior, samples: Mapping[str, np.ndarray], sizes: str = "placed") -> tuple[Prior, list[Fit]]:
    """Return the prior fitted to samples ({cx, cy, w, h} or {ctr}, each (N,) in percent), and all fits. An element that
    no family fits keeps its law. ``sizes``: ``drawn`` fits the law to the samples' sizes; ``placed`` fits the law whose
    draws have these sizes after placement has limited them to the lung."""
    if prior.placement == "heart":
        fits = _fit_number(RATIO, samples[RATIO], None)
        return _fitted_prior(prior, fits, [samples[RATIO].min()], prior.overshoot), fits
    centres, extents = (np.stack([samples[name] for name in names], axis=1) for names in NUMBERS_BY_ELEMENT.values())
    fits = [*_fit_element("center", centres, prior.laws), *_fit_element("size", extents, prior.laws)]
    distances = np.hstack([centres - extents / 2, 100 - (centres + extents / 2)])
    limits = np.percentile(distances, OVERSHOOT_PERCENTILE, axis=0)
    new = _fitted_prior(prior, fits, extents.min(axis=0), tuple(min(0.0, float(value)) for value in limits))
    if sizes == "placed" and "size" in new.laws:
        low, high = size_bounds(new, centres, np.tile(new.overshoot, (len(centres), 1)), "repo")
        drawn_fit = next(fit for fit in fits if fit.element == "size")
        placed_fit = replace(drawn_fit, law=fit_truncated(extents, low, high))
        fits = [*(replace(fit, is_chosen=fit.is_chosen and fit is not drawn_fit) for fit in fits), placed_fit]
        new = replace(new, laws=new.laws | {"size": placed_fit.law})
    return new, fits


def _fitted_prior(prior: Prior, fits: Sequence[Fit], smallest: Sequence[float], overshoot: tuple[float, ...]) -> Prior:
    """Return the prior with the chosen fits. An element keeps its laws unless all its numbers were fitted."""
    law_by_element = {fit.element: fit.law for fit in fits if fit.is_chosen}
    laws = {}
    for element in (*SINGLES, RATIO):
        names = [element] if element in law_by_element or element == RATIO else SINGLES[element]
        if all(name in law_by_element for name in names):
            laws |= {name: law_by_element[name] for name in names}
        else:
            laws |= {name: law for name, law in prior.laws.items() if name in (element, *SINGLES.get(element, ()))}
    minimum = tuple(float(value) for value in smallest)
    return replace(prior, laws=laws, minimum=minimum, overshoot=overshoot, origin="fit")


def compare_sides(samples: Mapping[str, np.ndarray], is_left: np.ndarray) -> list[tuple]:
    """Compare the samples of both lungs by the Kolmogorov-Smirnov test. Return (name, n right, n left, distance, p) of
    each number, or an empty list if a side has no samples."""
    if is_left.all() or not is_left.any():
        return []
    rows = []
    for name, values in samples.items():
        test = stats.ks_2samp(values[~is_left], values[is_left])
        rows.append((name, int((~is_left).sum()), int(is_left.sum()), float(test.statistic), float(test.pvalue)))
    return rows
