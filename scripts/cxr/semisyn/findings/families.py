"""Families of distributions of the priors, and the check of their parameters. No scipy: the driver imports this."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

SHAPES: dict[str, tuple[str, ...]] = {
    "norm": (), "genextreme": ("c",), "expon": (), "gamma": ("a",), "pareto": ("b",), "loggamma": ("c",),
    "lognorm": ("s",), "beta": ("a", "b"), "t": ("df",), "uniform": (),
}  # fmt: skip
"""One-dimensional families of scipy (the paper's ten) and their shape parameters; each also has loc and scale."""
SIGNED_FAMILIES = {"genextreme"}
"""Families whose shape may have any sign."""
CONSTANT, PAIR = "constant", "mvlognormal"
"""A fixed value, and the two-dimensional log-normal exp(N(mu, sigma))."""


class WrongValue(ValueError):
    """A wrong value. The message is ``key is value: remedy``; callers prepend the outer keys."""


@dataclass(frozen=True)
class Law:
    """A distribution. parameters: {name: number}; of the two-dimensional one {mu: (2,), sigma: (2, 2)}."""

    family: str
    parameters: Mapping[str, object]

    @property
    def is_pair(self) -> bool:
        """Whether it is two-dimensional."""
        return self.family == PAIR

    def to_dict(self) -> dict:
        """Return the law as builtins, in the layout of the YAML files."""
        return {"family": self.family} | dict(self.parameters)


def parse_law(entry: object) -> Law:
    """Return the checked law of ``{family: …, parameters}``. Raises WrongValue."""
    if not isinstance(entry, Mapping) or "family" not in entry:
        raise WrongValue(f" is {entry!r}: give a family and its parameters")
    family, parameters = entry["family"], {name: value for name, value in entry.items() if name != "family"}
    if family == PAIR:
        return _parse_pair(parameters)
    parameters_by_family = {CONSTANT: ("value",)} | {name: (*shapes, "loc", "scale") for name, shapes in SHAPES.items()}
    if family not in parameters_by_family:
        raise WrongValue(f".family is {family!r}: choose one of {', '.join([*parameters_by_family, PAIR])}")
    optional = {"loc": 0.0, "scale": 1.0}
    if missing := [name for name in parameters_by_family[family] if name not in {**optional, **parameters}]:
        raise WrongValue(f" lacks {missing[0]}, which the family {family} needs: give it")
    if unknown := [name for name in parameters if name not in parameters_by_family[family]]:
        raise WrongValue(f".{unknown[0]} is no parameter of the family {family}: remove it")
    values = {name: _check_number(name, {**optional, **parameters}[name]) for name in parameters_by_family[family]}
    for name, value in values.items():
        positive = name == "scale" or (name in SHAPES.get(family, ()) and family not in SIGNED_FAMILIES)
        if positive and value <= 0:
            raise WrongValue(f".{name} is {value:g}: give a number above 0")
    return Law(family, values)


def _parse_pair(parameters: Mapping) -> Law:
    if set(parameters) != {"mu", "sigma"}:
        raise WrongValue(f" has the parameters {', '.join(parameters) or 'none'}: the family {PAIR} needs mu and sigma")
    arrays = {}
    for name, shape in (("mu", (2,)), ("sigma", (2, 2))):
        try:
            array = np.array(parameters[name], np.float64)
        except (TypeError, ValueError):
            array = np.empty(0)
        if array.shape != shape or not np.isfinite(array).all():
            raise WrongValue(f".{name} is {parameters[name]!r}: give {' x '.join(map(str, shape))} numbers")
        arrays[name] = array
    (a, b), (c, d) = arrays["sigma"]
    if b != c or a <= 0 or a * d - b * c <= 0:
        raise WrongValue(f".sigma is {arrays['sigma'].tolist()}: give a symmetric, positive definite matrix")
    return Law(PAIR, {name: array.tolist() for name, array in arrays.items()})


def _check_number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise WrongValue(f".{name} is {value!r}: give a number")
    return float(value)
