"""The minimum scores (floors) of the reports engine in ``reports_floors.yaml``, and whether measures reach them."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

from reports_measures import Measure

TABLE = Path(__file__).with_suffix(".yaml")


class Verdict(NamedTuple):
    """Result for one floor. ``word``: met, not met or no cases; ``by_interval``: whether the interval's upper end
    counts."""

    name: str
    measure: Measure
    floor: float
    word: str
    by_interval: bool


def read(path: Path = TABLE) -> dict:
    """Return the table: ``whole``, ``lesions``, ``clinical`` and ``ceilings`` ({name: limit}), and ``few`` (number of
    cases)."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def verdict(name: str, measure: Measure, floor: float, few: int = 0) -> Verdict:
    """Compare a measure with its floor. For fewer than ``few`` cases, the upper end of its interval must reach the
    floor."""
    by_interval = measure.cases < few
    reached = measure.high if by_interval else measure.value
    if np.isnan(reached) or not measure.cases:
        return Verdict(name, measure, floor, "no cases", by_interval)
    return Verdict(name, measure, floor, "met" if reached >= floor else "not met", by_interval)


def held(found: dict[str, Measure], floors: dict[str, float], ceilings: dict[str, float]) -> list[Verdict]:
    """Return a verdict for each floor, and for each ceiling, a fraction that must not be exceeded."""
    rows = [verdict(name, found[name], floor) for name, floor in floors.items()]
    for name, most in ceilings.items():
        value = found[name].value
        word = "no cases" if np.isnan(value) else "met" if value <= most else "not met"
        rows.append(Verdict(f"{name}, at most", found[name], most, word, by_interval=False))
    return rows


def verdicts(whole: dict[str, Measure], lesions: dict[str, Measure], floors: dict) -> list[Verdict]:
    """Return a verdict for every floor whose measure is given, in the order of the table."""
    found = [verdict(name, whole[name], floor) for name, floor in floors["whole"].items() if name in whole]
    return found + [
        verdict(f"F1 {name}", lesions[name], floor, floors["few"]) for name, floor in floors["lesions"].items()
    ]
