"""Read the findings, with their priors, limits, zones, prompts and painters, from the resources and the user's file.
The user's file adds findings or replaces keys of existing findings. Its rules for reading prompts are tried first."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
"""One-dimensional families of scipy (the paper's ten) and their shape parameters. Each also has loc and scale."""
SIGNED_FAMILIES = {"genextreme"}
"""Families whose shape parameter may also be negative."""
CONSTANT, PAIR = "constant", "mvlognormal"
"""Families of a fixed value, and of the two-dimensional log-normal law exp(N(mu, sigma))."""


class WrongValue(ValueError):
    """Error for a wrong value. Its message is ``key is value: remedy``, to which callers prepend the outer keys."""


@contextmanager
def _below(key: str, kind: type[Exception] = WrongValue) -> Iterator[None]:
    """Prepend ``key`` to the message of a WrongValue, and raise it as ``kind``."""
    try:
        yield
    except WrongValue as error:
        raise kind(f"{key}{error}") from None


@dataclass(frozen=True)
class Law:
    """A law (probability distribution). parameters: {name: number}, or {mu: (2,), sigma: (2, 2)} in two dimensions."""

    family: str
    parameters: Mapping[str, object]

    def to_dict(self) -> dict:
        """Return the law in the layout of the YAML files, as plain Python values."""
        return {"family": self.family} | dict(self.parameters)


def parse_law(entry: object) -> Law:
    """Return the law of a YAML entry {family, parameters}. Raise WrongValue if the entry is not valid."""
    if not isinstance(entry, Mapping) or "family" not in entry:
        raise WrongValue(f" is {entry!r}: give a family and its parameters")
    family, parameters = entry["family"], {name: value for name, value in entry.items() if name != "family"}
    shapes = {name: dict.fromkeys((*names, "loc", "scale"), ()) for name, names in SHAPES.items()}
    shapes |= {CONSTANT: {"value": ()}, PAIR: {"mu": (2,), "sigma": (2, 2)}}
    if family not in shapes:
        raise WrongValue(f".family is {family!r}: choose one of {', '.join(shapes)}")
    values = {"loc": 0.0, "scale": 1.0} | parameters
    if missing := [name for name in shapes[family] if name not in values]:
        raise WrongValue(f" lacks {missing[0]}, which the family {family} needs: add {missing[0]}")
    if unknown := [name for name in parameters if name not in shapes[family]]:
        raise WrongValue(f".{unknown[0]} is no parameter of the family {family}: remove it")
    numbers = {name: _check_numbers(f".{name}", values[name], *shape) for name, shape in shapes[family].items()}
    for name, value in numbers.items():
        is_positive = name == "scale" or (name in SHAPES.get(family, ()) and family not in SIGNED_FAMILIES)
        if is_positive and value <= 0:
            raise WrongValue(f".{name} is {value:g}: give a number above 0")
    if family == PAIR:
        (a, b), (c, d) = numbers["sigma"]
        if b != c or a <= 0 or a * d - b * c <= 0:
            raise WrongValue(f".sigma is {numbers['sigma']}: give a symmetric, positive definite matrix")
    return Law(family, numbers)


RESOURCE_FILES = ("semisyn/priors.yaml", "semisyn/prompts.yaml")
SINGLES = {"center": ("center_x", "center_y"), "size": ("width", "height")}
"""{element of a prior: its two numbers}. Either the element has a two-dimensional law, or each number has a law."""
RATIO = "ctr"
"""The only element of a prior of the heart: the cardiothoracic ratio."""
PLACEMENTS = ("lung", "heart")
KEYS = ("label", "placement", "covers", "painter", "prior", "minimum", "overshoot", "origin", "prompts")
SECTIONS = ("findings", "zones", "parser", "lungs", "negative")
Zone = tuple[float, float, float, float]
WHOLE_LUNG: Zone = (0.0, 0.0, 100.0, 100.0)
"""Zone of a prompt that names no zone, in percent of the lung's box."""


@dataclass(frozen=True)
class Prior:
    """The prior of one finding, in percent of the lung's box (x from its lateral edge) or, for the heart, of the
    thorax's width. laws: {element: its law}; minimum: smallest width and height, or smallest ratio; overshoot: how far
    a box may extend beyond the lung's box (lateral, top, medial, bottom), as numbers ≤ 0; covers_bottom: whether a box
    must reach the lung's lower edge; origin: ``paper``, ``file`` (the user's) or ``fit``."""

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
        entry |= {"overshoot": list(self.overshoot)} if self.placement == "lung" else {}
        return entry | ({"covers": "bottom"} if self.covers_bottom else {})


@dataclass(frozen=True)
class Finding:
    """One finding. label: class name in exports; painter: name of its painting function; prompts: {text: weight}."""

    name: str
    label: str
    painter: str
    prior: Prior
    prompts: dict[str, float]


@dataclass(frozen=True)
class Catalogue:
    """All findings. zones: {side: {zone: box in percent of the lung's box, x from the left}}; lungs: source of the lung
    masks to which the priors were fitted; negative: negative prompt; parser: rules that read prompts. Its ``sides``
    and ``zones`` are [(regular expression, result)], of which the first match counts. Its ``instead`` is {zone:
    substitute in a lung without it}. Its ``lacking`` are regular expressions of prompts that need a substitute."""

    findings: dict[str, Finding]
    zones: dict[str, dict[str, Zone]]
    parser: dict
    lungs: str
    negative: str


def read_catalogue(findings_file: str | Path = "", priors: str | Path = "") -> Catalogue:
    """Read the findings from the resources, then from the user's file, then from ``priors``, a file of fitted priors.
    Values in later files replace those in earlier files. Raise UserError for a wrong value."""
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
        with _below(f"{key}: ", UserError):
            _merge_findings(entries, document.get("findings", {}), key, origin)
            _merge_reading(zones, parser, document)
        texts |= {name: str(document[name]) for name in ("lungs", "negative") if name in document}
    findings, first = {}, {}
    for name, entry in entries.items():
        with _below(f"{entry.pop('key')}: findings.{name}", UserError):
            prompts = entry.get("prompts")
            if not isinstance(prompts, dict) or not prompts:
                raise WrongValue(".prompts is missing: give {text: weight}")
            weights = {str(text): _check_numbers(f".prompts.{text}", weight) for text, weight in prompts.items()}
            if min(weights.values()) < 0 or sum(weights.values()) <= 0:
                raise WrongValue(".prompts has weights that are below 0 or add up to 0: give weights above 0")
            label, painter = (str(entry.get(key, name)) for key in ("label", "painter"))
            findings[name] = Finding(name, label, painter, _parse_prior(entry), weights)
    with _below(f"{sources[-1][1]}: ", UserError):
        for name, finding in findings.items():
            if (label_owner := first.setdefault(finding.label.casefold(), name)) != name:
                raise WrongValue(f"findings.{name}.label is {finding.label!r}, as for {label_owner}: change one")
        for pattern, side in parser["sides"]:
            if side not in (*SIDES, "both"):
                raise WrongValue(f"parser.sides gives {pattern!r} the side {side!r}: use right, left or both")
        for pattern, zone in parser["zones"]:
            for side in SIDES:
                if zone not in zones[side] and parser["instead"].get(zone) not in zones[side]:
                    raise WrongValue(f"parser.zones gives {pattern!r} the zone {zone!r}: define it in zones.{side}")
    return Catalogue(findings, zones, parser, texts["lungs"], texts["negative"])


def read_labels(findings_file: str | Path) -> dict[str, str]:
    """Return {name: label} of all findings, the user's included. Raise UserError like :func:`read_catalogue`."""
    return {name: finding.label for name, finding in read_catalogue(findings_file).findings.items()}


def _read_document(path: Path, key: str) -> dict:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        refuse_machine_fault(path, error)
        message = " ".join(str(error).split())
        raise UserError(f"{key} cannot be read as YAML ({message}): correct this file") from None
    if not isinstance(document, dict) or not isinstance(document.get("findings", {}), dict):
        raise UserError(f"{key} has no mapping of findings by name: write it like resources/semisyn/priors.yaml")
    if unknown := [name for name in document if name not in SECTIONS]:
        raise UserError(f"{key}: {unknown[0]!r} is no key of this file: use only {', '.join(SECTIONS)}")
    return document


def _merge_findings(entries: dict[str, dict], findings: Mapping, key: str, origin: str) -> None:
    for name, entry in findings.items():
        if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise WrongValue(f"a finding is named {name!r}: use lower-case letters, digits and _")
        if not isinstance(entry, dict):
            raise WrongValue(f"findings.{name} is {entry!r}: give a mapping of its keys")
        if unknown := [inner for inner in entry if inner not in KEYS]:
            raise WrongValue(f"findings.{name}.{unknown[0]} is no key of a finding: use only {', '.join(KEYS)}")
        default_origin = {"origin": origin} if origin and "prior" in entry else {}
        entries[name] = entries.get(name, {}) | default_origin | entry | {"key": key}


def _merge_reading(zones: dict[str, dict], parser: dict, document: Mapping) -> None:
    for side, boxes in _check_mapping("zones", document.get("zones", {})).items():
        if side not in zones:
            raise WrongValue(f"zones.{side} is no side: use {' or '.join(SIDES)}")
        for zone, box in _check_mapping(f"zones.{side}", boxes).items():
            x1, y1, x2, y2 = corners = tuple(_check_numbers(f"zones.{side}.{zone}", box, 4))
            if x1 >= x2 or y1 >= y2:
                raise WrongValue(f"zones.{side}.{zone} is {box}: give x1 < x2 and y1 < y2")
            zones[side][zone] = corners
    for part, rules in _check_mapping("parser", document.get("parser", {})).items():
        if part == "instead":
            parser[part] = parser[part] | _check_mapping("parser.instead", rules)
        elif part in parser and isinstance(rules, list):
            for rule in rules:
                try:
                    pattern, _ = [rule, ""] if part == "lacking" else rule
                    re.compile(pattern)
                except (TypeError, ValueError, re.error):
                    raise WrongValue(f"parser.{part} contains {rule!r}: give [regular expression, result]") from None
            parser[part] = rules + parser[part]
        else:
            raise WrongValue(f"parser.{part} is {rules!r}: give lists (sides, zones, lacking) or a mapping (instead)")


def _parse_prior(entry: Mapping) -> Prior:
    placement, covers = entry.get("placement", "lung"), entry.get("covers")
    if placement not in PLACEMENTS:
        raise WrongValue(f".placement is {placement!r}: choose one of {', '.join(PLACEMENTS)}")
    if covers not in (None, "bottom"):
        raise WrongValue(f".covers is {covers!r}: choose bottom, or remove it")
    laws = {}
    for name, law_entry in _check_mapping(".prior", entry.get("prior")).items():
        with _below(f".prior.{name}"):
            laws[name] = parse_law(law_entry)
    if placement == "heart":
        elements, need = {RATIO}, RATIO
    else:
        elements = set.union(*({pair} if pair in laws else set(singles) for pair, singles in SINGLES.items()))
        need = "center (or center_x and center_y) and size (or width and height)"
    if set(laws) != elements:
        raise WrongValue(f".prior has the elements {', '.join(laws) or 'none'}: give {need}")
    for name, law in laws.items():
        if (law.family == PAIR) != (name in SINGLES):
            raise WrongValue(f".prior.{name}.family is {law.family!r}: choose {PAIR} for center or size, else another")
    overshoot = tuple(_check_numbers(".overshoot", entry.get("overshoot", [0.0] * 4), 4))
    if max(overshoot) > 0:
        raise WrongValue(f".overshoot is {list(overshoot)}: give numbers that are not above 0")
    count = 2 if placement == "lung" else 1
    minimum = tuple(_check_numbers(".minimum", entry.get("minimum", [0.0] * count), count))
    return Prior(placement, laws, minimum, overshoot, covers == "bottom", str(entry.get("origin", "file")))


def _check_mapping(key: str, value: object) -> dict:
    if not isinstance(value, dict):
        raise WrongValue(f"{key} is {value!r}: give a mapping")
    return value


def _check_numbers(key: str, value: object, *shape: int):
    """Return ``value`` as a float, or as nested lists of a ``shape``. Raise WrongValue if it is not finite numbers."""
    try:
        array = np.array(value)
    except ValueError:  # lists of unequal length
        array = np.array(None)
    if array.shape != shape or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        need = f"{' x '.join(map(str, shape))} numbers" if shape else "a number"
        raise WrongValue(f"{key} is {value!r}: give {need}")
    return array.astype(np.float64).tolist()


BOTH, ANY = "both", "any"


def parse_prompt(prompt: str, parser: Mapping) -> tuple[str, str]:
    """Return the side (``right``, ``left``, ``both``, ``any``) and the zone ("" for none) that a prompt names."""
    text = prompt.lower()
    side = next((side for pattern, side in parser["sides"] if re.search(pattern, text)), ANY)
    return side, next((zone for pattern, zone in parser["zones"] if re.search(pattern, text)), "")


def choose_sides(side: str, unsided: str, coin: float) -> tuple[str, ...]:
    """Return the lungs that get a box for the ``side`` that a prompt names. For the side ``any`` these are both lungs
    if ``unsided`` is ``both``, otherwise one lung chosen by ``coin``, a random number in [0, 1)."""
    if side == BOTH or (side == ANY and unsided == BOTH):
        return SIDES
    return (SIDES[int(coin >= 0.5)],) if side == ANY else (side,)


def zone_bounds(zone: str, side: str, catalogue: Catalogue) -> tuple[str, Zone]:
    """Return the zone, or its substitute if the lung on this ``side`` lacks it, and the box of the zone in percent of
    the lung's box, with x from the lateral edge."""
    if not zone:
        return "", WHOLE_LUNG
    if zone not in catalogue.zones[side]:
        zone = catalogue.parser["instead"][zone]
    x1, y1, x2, y2 = catalogue.zones[side][zone]
    return zone, (x1, y1, x2, y2) if side == SIDES[0] else (100.0 - x2, y1, 100.0 - x1, y2)


def draw_prompt(prompts: Mapping[str, float], uniform: float) -> str:
    """Return a prompt drawn in proportion to its weight. ``uniform``: random number in [0, 1)."""
    sums = list(accumulate(prompts.values()))
    return list(prompts)[min(bisect_right(sums, uniform * sums[-1]), len(prompts) - 1)]
