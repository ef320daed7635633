"""Read the findings: their priors, limits, zones, prompts and painters, from the resources and a user's file.

The user's file (``semisyn.findings_file``) is YAML with the keys of ``resources/semisyn/priors.yaml`` and
``prompts.yaml``. It adds findings or replaces keys of existing ones; its parser rules precede those of the resource.
"""

import math
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import yaml

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import SIDES

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
    names_by_family = {CONSTANT: ("value",)} | {name: (*shapes, "loc", "scale") for name, shapes in SHAPES.items()}
    if family not in names_by_family:
        raise WrongValue(f".family is {family!r}: choose one of {', '.join([*names_by_family, PAIR])}")
    names, values = names_by_family[family], {"loc": 0.0, "scale": 1.0} | parameters
    if missing := [name for name in names if name not in values]:
        raise WrongValue(f" lacks {missing[0]}, which the family {family} needs: give it")
    if unknown := [name for name in parameters if name not in names]:
        raise WrongValue(f".{unknown[0]} is no parameter of the family {family}: remove it")
    numbers = {name: _check_numbers(f".{name}", [values[name]], 1)[0] for name in names}
    for name, value in numbers.items():
        is_positive = name == "scale" or (name in SHAPES.get(family, ()) and family not in SIGNED_FAMILIES)
        if is_positive and value <= 0:
            raise WrongValue(f".{name} is {value:g}: give a number above 0")
    return Law(family, numbers)


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
        arrays[name] = array.tolist()
    (a, b), (c, d) = arrays["sigma"]
    if b != c or a <= 0 or a * d - b * c <= 0:
        raise WrongValue(f".sigma is {arrays['sigma']}: give a symmetric, positive definite matrix")
    return Law(PAIR, arrays)


RESOURCE_FILES = ("semisyn/priors.yaml", "semisyn/prompts.yaml")
SINGLES = {"center": ("center_x", "center_y"), "size": ("width", "height")}
"""Elements of a prior in a lung: each has one two-dimensional law, or two one-dimensional ones."""
RATIO = "ctr"
"""The element of a prior of the heart."""
PLACEMENTS = ("lung", "heart")
KEYS = ("label", "placement", "covers", "painter", "prior", "minimum", "overshoot", "origin", "prompts")
SECTIONS = ("findings", "zones", "parser", "lungs", "negative")
Zone = tuple[float, float, float, float]
WHOLE_LUNG: Zone = (0.0, 0.0, 100.0, 100.0)
"""The zone of a prompt that names none."""


@dataclass(frozen=True)
class Prior:
    """The prior of one finding, in percent. In a lung: of the lung's box, x from its lateral edge.

    laws: {element: its law}; minimum: smallest width and height, or smallest cardiothoracic ratio; overshoot: limits of
    the distance to the lung's box (lateral, top, medial, bottom), negative outside it; covers_bottom: the box must
    reach the lung's lower edge; origin: ``paper``, ``file`` (the user's) or ``fit``.
    """

    placement: str
    laws: dict[str, Law]
    minimum: tuple[float, ...]
    overshoot: Zone
    covers_bottom: bool
    origin: str

    def to_dict(self) -> dict:
        """Return the prior in the layout of the YAML files."""
        entry = {"placement": self.placement, "prior": {name: law.to_dict() for name, law in self.laws.items()}}
        entry |= {"minimum": list(self.minimum), "origin": self.origin}
        if self.placement == "lung":
            entry |= {"overshoot": list(self.overshoot)}
        return entry | ({"covers": "bottom"} if self.covers_bottom else {})


@dataclass(frozen=True)
class Finding:
    """One finding. label: its name in a dataset; painter: of the engine lite; prompts: {text: weight}."""

    name: str
    label: str
    painter: str
    prior: Prior
    prompts: dict[str, float]


@dataclass(frozen=True)
class Parser:
    """Rules that read side and zone from a prompt: (regular expression, result); the first match wins.

    instead: {zone: its substitute on a side that lacks it}; lacking: expressions of prompts that need a substitute,
    which are counted.
    """

    sides: list[tuple[str, str]]
    zones: list[tuple[str, str]]
    instead: dict[str, str]
    lacking: list[str]


@dataclass(frozen=True)
class Catalogue:
    """All findings, zones {side: {zone: box}}, the parser, the lung engine of the priors, and the negative prompt.

    Zones: percent of the lung's box as displayed, x from the image's left.
    """

    findings: dict[str, Finding]
    zones: dict[str, dict[str, Zone]]
    parser: Parser
    lungs: str
    negative: str


def read_catalogue(findings_file: str | Path = "", priors: str | Path = "") -> Catalogue:
    """Read the resources, then the user's file, then ``priors`` (priors.yaml); later files win.

    Raises UserError for a file that cannot be read or has a wrong value.
    """
    sources = [(RESOURCES / name, name, "paper") for name in RESOURCE_FILES]
    if findings_file:
        sources.append((Path(findings_file), f"semisyn.findings_file {str(findings_file)!r}", "file"))
    if priors:
        sources.append((Path(priors), str(priors), ""))
    entries: dict[str, dict] = {}
    zones: dict[str, dict] = {side: {} for side in SIDES}
    parser: dict = {"sides": [], "zones": [], "instead": {}, "lacking": []}
    texts: dict[str, str] = {}
    for path, key, origin in sources:
        document = _read_document(path, key)
        try:
            _merge_findings(entries, document.get("findings", {}), key, origin)
            _merge_zones(zones, document.get("zones", {}))
            _merge_parser(parser, document.get("parser", {}))
        except WrongValue as error:
            raise UserError(f"{key}: {error}") from None
        texts |= {name: str(document[name]) for name in ("lungs", "negative") if name in document}
    findings: dict[str, Finding] = {}
    for name, entry in entries.items():
        key = entry.pop("key")
        try:
            findings[name] = _parse_finding(name, entry)
        except WrongValue as error:
            raise UserError(f"{key}: findings.{name}{error}") from None
    try:
        _check_together(findings, parser, zones)
    except WrongValue as error:
        raise UserError(f"{sources[-1][1]}: {error}") from None
    return Catalogue(findings, zones, Parser(**parser), texts["lungs"], texts["negative"])


def _check_together(findings: Mapping[str, Finding], parser: Mapping, zones: Mapping[str, Mapping]) -> None:
    """Raise WrongValue if two findings would become one class of the dataset, or a parser's rule names no zone."""
    first: dict[str, str] = {}
    for name, finding in findings.items():
        if (label_owner := first.setdefault(finding.label.casefold(), name)) != name:
            raise WrongValue(f"findings.{name}.label is {finding.label!r}, as of {label_owner}: give it another")
    for pattern, side in parser["sides"]:
        if side not in (*SIDES, "both"):
            raise WrongValue(f"parser.sides gives {pattern!r} the side {side!r}: use right, left or both")
    for pattern, zone in parser["zones"]:
        for side in SIDES:
            if zone not in zones[side] and parser["instead"].get(zone) not in zones[side]:
                raise WrongValue(f"parser.zones gives {pattern!r} the zone {zone!r}: add it to zones.{side}")


def read_labels(findings_file: str | Path) -> dict[str, str]:
    """Return {name: label} of all findings, the user's included. Raises UserError like :func:`read_catalogue`."""
    return {name: finding.label for name, finding in read_catalogue(findings_file).findings.items()}


def _read_document(path: Path, key: str) -> dict:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        refuse_machine_fault(path, error)
        message = " ".join(str(error).split())
        raise UserError(f"{key} cannot be read as YAML ({message}): correct it") from None
    if not isinstance(document, dict) or not isinstance(document.get("findings", {}), dict):
        raise UserError(f"{key} is no mapping with findings by name: write it like resources/semisyn/priors.yaml")
    if unknown := [name for name in document if name not in SECTIONS]:
        raise UserError(f"{key}: {unknown[0]!r} is no key of it: use {', '.join(SECTIONS)}")
    return document


def _merge_findings(entries: dict[str, dict], findings: Mapping, key: str, origin: str) -> None:
    for name, entry in findings.items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise WrongValue(f"a finding is named {name!r}: use small letters, digits and _")
        if not isinstance(entry, dict):
            raise WrongValue(f"findings.{name} is {entry!r}: give its keys")
        if unknown := [inner for inner in entry if inner not in KEYS]:
            raise WrongValue(f"findings.{name}.{unknown[0]} is no key of a finding: use {', '.join(KEYS)}")
        default_origin = {"origin": origin} if origin and "prior" in entry else {}
        entries[name] = entries.get(name, {}) | default_origin | entry | {"key": key}


def _merge_zones(zones: dict[str, dict], section: object) -> None:
    for side, boxes in _check_mapping("zones", section).items():
        if side not in zones:
            raise WrongValue(f"zones.{side} is no side: use {' or '.join(SIDES)}")
        for zone, box in _check_mapping(f"zones.{side}", boxes).items():
            x1, y1, x2, y2 = corners = _check_numbers(f"zones.{side}.{zone}", box, 4)
            if x1 >= x2 or y1 >= y2:
                raise WrongValue(f"zones.{side}.{zone} is {box}: give x1 < x2 and y1 < y2")
            zones[side][zone] = corners


def _merge_parser(parser: dict, section: object) -> None:
    for part, rules in _check_mapping("parser", section).items():
        if part == "instead":
            parser[part] = parser[part] | _check_mapping("parser.instead", rules)
        elif part == "lacking" and isinstance(rules, list):
            parser[part] = [_check_rule("parser.lacking", [pattern, ""])[0] for pattern in rules] + parser[part]
        elif part in parser and isinstance(rules, list):
            parser[part] = [_check_rule(f"parser.{part}", rule) for rule in rules] + parser[part]
        else:
            raise WrongValue(f"parser.{part} is {rules!r}: give lists sides, zones and lacking, and a mapping instead")


def _check_rule(key: str, rule: object) -> tuple[str, str]:
    try:
        pattern, result = rule
        re.compile(pattern)
    except (TypeError, ValueError, re.error):
        raise WrongValue(f"{key} holds {rule!r}: give [regular expression, result]") from None
    return pattern, result


def _parse_finding(name: str, entry: Mapping) -> Finding:
    prompts = entry.get("prompts")
    if not isinstance(prompts, dict) or not prompts:
        raise WrongValue(".prompts is missing: give {text: weight}")
    weights = {str(text): _check_numbers(f".prompts.{text}", [weight], 1)[0] for text, weight in prompts.items()}
    if min(weights.values()) < 0 or sum(weights.values()) <= 0:
        raise WrongValue(".prompts has weights that are below 0 or add to 0: give weights above 0")
    return Finding(name, str(entry.get("label", name)), str(entry.get("painter", name)), _parse_prior(entry), weights)


def _parse_prior(entry: Mapping) -> Prior:
    placement, covers = entry.get("placement", "lung"), entry.get("covers")
    if placement not in PLACEMENTS:
        raise WrongValue(f".placement is {placement!r}: choose one of {', '.join(PLACEMENTS)}")
    if covers not in (None, "bottom"):
        raise WrongValue(f".covers is {covers!r}: choose bottom, or remove it")
    laws = {}
    for name, law_entry in _check_mapping(".prior", entry.get("prior")).items():
        try:
            laws[name] = parse_law(law_entry)
        except WrongValue as error:
            raise WrongValue(f".prior.{name}{error}") from None
    _check_elements(placement, laws)
    minimum = [0.0, 0.0] if placement == "lung" else [0.0]
    overshoot = _check_numbers(".overshoot", entry.get("overshoot", [0.0] * 4), 4)
    if max(overshoot) > 0:
        raise WrongValue(f".overshoot is {list(overshoot)}: give numbers that are not above 0")
    minimum = _check_numbers(".minimum", entry.get("minimum", minimum), len(minimum))
    return Prior(placement, laws, minimum, overshoot, covers == "bottom", str(entry.get("origin", "file")))


def _check_elements(placement: str, laws: Mapping[str, Law]) -> None:
    """Raise WrongValue unless the laws are those of the placement's elements, each of the right dimensions."""
    if placement == "heart":
        is_right, need = set(laws) == {RATIO}, RATIO
    else:
        need = "center or center_x and center_y, and size or width and height"
        names = ({pair} if pair in laws else set(singles) for pair, singles in SINGLES.items())
        is_right = set(laws) == set.union(*names)
    if not is_right:
        raise WrongValue(f".prior has the elements {', '.join(laws) or 'none'}: give {need}")
    for name, law in laws.items():
        if law.is_pair != (name in SINGLES):
            raise WrongValue(f".prior.{name}.family is {law.family!r}: it has not the dimensions of {name}")


def _check_mapping(key: str, value: object) -> dict:
    if not isinstance(value, dict):
        raise WrongValue(f"{key} is {value!r}: give a mapping")
    return value


def _check_numbers(key: str, values: object, count: int) -> tuple[float, ...]:
    if not isinstance(values, list | tuple) or len(values) != count:
        raise WrongValue(f"{key} is {values!r}: give {count} numbers")
    for value in values:
        if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
            wrong = values[0] if count == 1 else values
            raise WrongValue(f"{key} is {wrong!r}: give {'a number' if count == 1 else 'numbers'}")
    return tuple(map(float, values))


BOTH, ANY = "both", "any"


def parse_prompt(prompt: str, parser: Parser) -> tuple[str, str]:
    """Return the side (``right``, ``left``, ``both``, ``any``) and the zone ("" for none) that a prompt names."""
    text = prompt.lower()
    side = next((side for pattern, side in parser.sides if re.search(pattern, text)), ANY)
    return side, next((zone for pattern, zone in parser.zones if re.search(pattern, text)), "")


def choose_sides(side: str, unsided: str, coin: float) -> tuple[str, ...]:
    """Return the lungs that get a box. ``unsided``: lungs of a prompt without a side, ``both`` or ``one``.

    ``coin``: uniform in [0, 1), chooses the one lung of a prompt without a side.
    """
    if side == BOTH or (side == ANY and unsided == BOTH):
        return SIDES
    return (SIDES[int(coin >= 0.5)],) if side == ANY else (side,)


def zone_bounds(zone: str, side: str, catalogue: Catalogue) -> tuple[str, Zone]:
    """Return the zone used in a lung and its box in percent, mirrored so that x is 0 at the lateral edge.

    A lobe that the lung lacks is replaced (``Parser.instead``). Raises KeyError for an unknown zone.
    """
    if not zone:
        return "", WHOLE_LUNG
    if zone not in catalogue.zones[side]:
        zone = catalogue.parser.instead[zone]
    x1, y1, x2, y2 = catalogue.zones[side][zone]
    return zone, (x1, y1, x2, y2) if side == SIDES[0] else (100.0 - x2, y1, 100.0 - x1, y2)


def draw_prompt(prompts: Mapping[str, float], uniform: float) -> str:
    """Return the prompt at ``uniform`` in [0, 1) of the weights, which are divided by their sum."""
    sums = list(accumulate(prompts.values()))
    return list(prompts)[min(bisect_right(sums, uniform * sums[-1]), len(prompts) - 1)]
