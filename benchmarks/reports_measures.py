"""The measures of labelled reports with bootstrap intervals, and the folds of the reports."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

import reports_scores as scores
from cxr.base.vocabulary import LESIONS
from cxr.metrics import labels
from reports_labelled import Report


class Measure(NamedTuple):
    """A value, its 95 % bootstrap interval (NaN if undefined), and its number of cases."""

    value: float
    low: float
    high: float
    cases: int


@dataclass(frozen=True)
class Sums:
    """Sums of counts over all reports (...), and over the reports of each bootstrap draw (rounds, ...)."""

    whole: np.ndarray
    drawn: np.ndarray

    def measure(self, score: Callable[[np.ndarray], np.ndarray], cases: int) -> Measure:
        """Return the score of the sums with its percentile interval; draws in which the score is undefined are
        ignored."""
        values = score(self.drawn)
        values = values[np.isfinite(values)]
        low, high = np.percentile(values, [2.5, 97.5]) if len(values) else (np.nan, np.nan)
        return Measure(float(score(self.whole)), float(low), float(high), int(cases))

    def part(self, index: tuple) -> "Sums":
        """Return the sums at an index of the counts, such as one lesion."""
        return Sums(self.whole[index], self.drawn[(slice(None), *index)])

    def total(self) -> "Sums":
        """Return the sums over the first axis of the counts, the lesions."""
        return Sums(self.whole.sum(0), self.drawn.sum(1))


def sums(counts: np.ndarray, groups: list[str], rounds: int) -> Sums:
    """Sum counts (reports, ...) over all reports and over ``rounds`` draws of groups of reports with replacement.

    The draws depend only on the groups.
    """
    names, index = np.unique(groups, return_inverse=True)
    grouped = np.zeros((len(names), *counts.shape[1:]), int)
    np.add.at(grouped, index, counts)
    random, chance = np.random.default_rng(0), np.full(len(names), 1 / len(names))
    drawn = [np.tensordot(random.multinomial(len(names), chance), grouped, 1) for _ in range(rounds)]
    return Sums(counts.sum(0), np.array(drawn))


def fold_of(groups: list[str], folds: int) -> np.ndarray:
    """Return the fold of each report, int (reports,), from 0. Groups are not split, and folds have equal numbers of
    groups."""
    order = sorted(set(groups), key=lambda group: hashlib.md5(group.encode()).digest())
    number = {group: place % folds for place, group in enumerate(order)}
    return np.array([number[group] for group in groups])


@dataclass(frozen=True)
class Accuracy:
    """Measures of labelled reports.

    ways: {key of WAYS: {"P", "R", "micro-F1", "macro-F1": Measure}}; lesions: {lesion: {"P", "R", "F1": Measure}};
    places: {"laterality", "zone_family": Measure}; place_counts: int (7 lesions, sides and zones, right and scored).
    """

    ways: dict[str, dict[str, Measure]]
    lesions: dict[str, dict[str, Measure]]
    places: dict[str, Measure]
    place_counts: np.ndarray

    @property
    def whole(self) -> dict[str, Measure]:
        """{name in ``reports_floors.yaml``: measure}, for the measures that have floors."""
        return {
            "micro-F1": self.ways["weak dropped"]["micro-F1"],
            "macro-F1": self.ways["weak dropped"]["macro-F1"],
            "precision, definite": self.ways["definite only"]["P"],
            "recall, all certainties": self.ways["all"]["R"],
            **self.places,
        }


def measured(reports: list[Report], answers: list[list[dict]], rounds: int) -> Accuracy:
    """Score the answers; the intervals come from ``rounds`` draws of groups of reports with equal texts."""
    groups = [report.group for report in reports]
    ways, lesions = {}, {}
    for way, grades in scores.WAYS.items():
        by_lesion = sums(scores.count(reports, answers, grades), groups, rounds)
        everything, cases = by_lesion.total(), by_lesion.whole[:, [0, 2]].sum()
        ways[way] = {
            "P": everything.measure(labels.precision, cases),
            "R": everything.measure(labels.recall, cases),
            "micro-F1": everything.measure(labels.f1, cases),
            "macro-F1": by_lesion.measure(labels.macro_f1, cases),
        }
        if grades == scores.USUAL:
            for column, lesion in enumerate(LESIONS):
                own, n = by_lesion.part((column,)), by_lesion.whole[column, [0, 2]].sum()
                parts = (("P", labels.precision), ("R", labels.recall), ("F1", labels.f1))
                lesions[lesion] = {name: own.measure(score, n) for name, score in parts}
    placed = sums(scores.count_places(reports, answers), groups, rounds)
    places = {}
    for kind, name in enumerate(("laterality", "zone_family")):
        own = placed.total().part((kind,))
        places[name] = own.measure(scores.part_right, own.whole[1])
    return Accuracy(ways, lesions, places, placed.whole)


def of_cases(right: list[bool], rounds: int) -> Measure:
    """Return the fraction of sentences that are entirely right. The interval comes from draws of single sentences."""
    counts = np.array([[good, 1] for good in right], int)
    drawn = sums(counts, [str(number) for number in range(len(right))], rounds)
    return drawn.measure(scores.part_right, len(right))
