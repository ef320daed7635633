"""Measures of one run's predictions against one reference, by finding, each with its value in any draw of images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.geometry.boxes import CORNERS
from cxr.metrics.average_precision import Matched, average_precision, matched, recall_at, sample_precision
from cxr.metrics.matching import Boxes

MEAN = "mean"
FALSE_BOXES = {"recall_quarter": 0.25, "recall_half": 0.5, "recall_1": 1.0, "recall_2": 2.0}
"""Recall at so many false boxes an image."""


@dataclass(frozen=True)
class Population:
    """The images that are scored, their patients (images,), and the true boxes of each finding that has any."""

    images: tuple[str, ...]
    patients: np.ndarray
    true: Mapping[str, Boxes]

    def boxes_of(self, table: pl.DataFrame) -> Boxes:
        """Return the boxes of a table of these images."""
        number = {image: place for place, image in enumerate(self.images)}
        places = np.array([number[image] for image in table["image_id"]], np.int64)
        return Boxes(places, table.select(CORNERS).to_numpy().astype(np.float64).reshape(-1, 4))


def population_of(boxes: pl.DataFrame, images: Sequence[str], patient: Mapping[str, str]) -> Population:
    """Return the population of a reference's boxes (image_id, finding, corners) and of all images that were read."""
    images = tuple(sorted(images))
    bare_population = Population(images, np.array([patient[image] for image in images]), {})
    true = {
        name: bare_population.boxes_of(part) for (name,), part in sorted(boxes.group_by("finding", maintain_order=True))
    }
    return Population(images, bare_population.patients, true)


@dataclass(frozen=True)
class MatchedRun:
    """One run's predictions matched with a population: {finding: what was matched}; ``ious`` of the matching."""

    matches_by_finding: Mapping[str, Matched]
    ious: tuple[float, ...]
    points: int

    def average_ap(self, draws: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return {finding, then the mean: AP float64 (R, T)} of R draws; the mean is over findings with true boxes."""
        ap_by_finding = {
            name: average_precision(matches, self.points, draws) for name, matches in self.matches_by_finding.items()
        }
        table = np.stack(list(ap_by_finding.values()))
        count = (~np.isnan(table)).sum(axis=0)
        mean = np.divide(np.nansum(table, axis=0), count, out=np.full(count.shape, np.nan), where=count > 0)
        return ap_by_finding | {MEAN: mean}

    def iou_index(self, iou: float) -> int:
        """Return the number of an IoU among the matched ones."""
        return self.ious.index(iou)

    def undrawn_metrics(self, range_of: int, iou: float, sample: float) -> dict[tuple[str, str], float]:
        """Return {(finding or mean, metric): value} of the metrics without draws: recalls and each image's own AP.

        ``range_of``: how many of the IoUs are the averaged ones; ``iou``: of the recalls; ``sample``: of the own AP.
        """
        values: dict[tuple[str, str], float] = {}
        for name, matches in self.matches_by_finding.items():
            for metric, value in zip(
                FALSE_BOXES, recall_at(matches, self.iou_index(iou), [*FALSE_BOXES.values()]), strict=True
            ):
                values[name, metric] = float(value)
            values[name, "ap50_sample"] = float(
                np.nanmean(sample_precision(matches, self.iou_index(sample), self.points))
            )
        for metric in (*FALSE_BOXES, "ap50_sample"):
            values[MEAN, metric] = float(np.mean([values[name, metric] for name in self.matches_by_finding]))
        return values


def match_run(population: Population, predicted: pl.DataFrame, ious: Sequence[float], points: int) -> MatchedRun:
    """Match predictions (image_id, finding, confidence, corners) of one run with a population.

    Predictions of other images, and of findings without a true box there, count for nothing.
    """
    predictions = predicted.filter(pl.col("image_id").is_in(list(population.images)))
    matches_by_finding = {}
    for name, true in population.true.items():
        finding_predictions = predictions.filter(pl.col("finding") == name)
        confidence = finding_predictions["confidence"].to_numpy().astype(np.float64)
        matches_by_finding[name] = matched(
            population.boxes_of(finding_predictions), confidence, true, len(population.images), ious
        )
    return MatchedRun(matches_by_finding, tuple(ious), points)


def rarest_finding(population: Population) -> np.ndarray:
    """Return of each image the finding that fewest images have among its own, "" without one: for stratified draws."""
    holders = {name: np.unique(true.image) for name, true in population.true.items()}
    result = np.full(len(population.images), "", dtype=object)
    for name in sorted(holders, key=lambda name: -len(holders[name])):
        result[holders[name]] = name
    return result.astype(str)
