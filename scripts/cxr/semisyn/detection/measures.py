"""Match one run's predictions with one reference, and compute AP and recall by finding, also for draws of images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.geometry.boxes import CORNERS
from cxr.metrics.average_precision import (
    MatchedPredictions,
    average_precision,
    average_precision_by_image,
    match_predictions,
    recall_at,
)
from cxr.metrics.matching import Boxes

MEAN = "mean"
FALSE_BOXES = {"recall_quarter": 0.25, "recall_half": 0.5, "recall_1": 1.0, "recall_2": 2.0}
"""{metric: false boxes per image at which recall is measured}."""


@dataclass(frozen=True)
class Population:
    """The scored images, their patients (images,), and the reference boxes of each finding that has any."""

    images: tuple[str, ...]
    patients: np.ndarray
    true: Mapping[str, Boxes]

    def boxes_of(self, table: pl.DataFrame) -> Boxes:
        """Return the boxes of a table whose images are of this population."""
        number = {image: place for place, image in enumerate(self.images)}
        places = np.array([number[image] for image in table["image_id"]], np.int64)
        return Boxes(places, table.select(CORNERS).to_numpy().astype(np.float64).reshape(-1, 4))


def population_of(boxes: pl.DataFrame, images: Sequence[str], patient: Mapping[str, str]) -> Population:
    """Return the population of a reference: its boxes (image_id, finding, corners) and all its images."""
    images = tuple(sorted(images))
    bare_population = Population(images, np.array([patient[image] for image in images]), {})
    true = {
        name: bare_population.boxes_of(part) for (name,), part in sorted(boxes.group_by("finding", maintain_order=True))
    }
    return Population(images, bare_population.patients, true)


@dataclass(frozen=True)
class MatchedRun:
    """One run's predictions matched with a population at ``ious``. points: recalls of an AP."""

    matches_by_finding: Mapping[str, MatchedPredictions]
    ious: tuple[float, ...]
    points: int

    def average_ap(self, draws: np.ndarray | None = None) -> dict[str, np.ndarray]:
        """Return {finding or MEAN: AP float64 (R, T)} of R draws at T IoUs; the mean is over findings with boxes."""
        ap_by_finding = {
            name: average_precision(matches, self.points, draws) for name, matches in self.matches_by_finding.items()
        }
        table = np.stack(list(ap_by_finding.values()))
        count = (~np.isnan(table)).sum(axis=0)
        mean = np.divide(np.nansum(table, axis=0), count, out=np.full(count.shape, np.nan), where=count > 0)
        return ap_by_finding | {MEAN: mean}

    def iou_index(self, iou: float) -> int:
        """Return the index of an IoU among the matched ones."""
        return self.ious.index(iou)

    def undrawn_metrics(self, iou: float, sample: float) -> dict[tuple[str, str], float]:
        """Return {(finding or MEAN, metric): value} of the metrics without intervals: recalls and per-image AP.

        ``iou``: of the recalls; ``sample``: IoU of the per-image AP.
        """
        values: dict[tuple[str, str], float] = {}
        for name, matches in self.matches_by_finding.items():
            for metric, value in zip(
                FALSE_BOXES, recall_at(matches, self.iou_index(iou), [*FALSE_BOXES.values()]), strict=True
            ):
                values[name, metric] = float(value)
            values[name, "ap50_sample"] = float(
                np.nanmean(average_precision_by_image(matches, self.iou_index(sample), self.points))
            )
        for metric in (*FALSE_BOXES, "ap50_sample"):
            values[MEAN, metric] = float(np.mean([values[name, metric] for name in self.matches_by_finding]))
        return values


def match_run(population: Population, predicted: pl.DataFrame, ious: Sequence[float], points: int) -> MatchedRun:
    """Match predictions (image_id, finding, confidence, corners) of one run with a population.

    Predictions on other images, and of findings without a reference box, are ignored.
    """
    predictions = predicted.filter(pl.col("image_id").is_in(list(population.images)))
    matches_by_finding = {}
    for name, true in population.true.items():
        finding_predictions = predictions.filter(pl.col("finding") == name)
        confidence = finding_predictions["confidence"].to_numpy().astype(np.float64)
        matches_by_finding[name] = match_predictions(
            population.boxes_of(finding_predictions), confidence, true, len(population.images), ious
        )
    return MatchedRun(matches_by_finding, tuple(ious), points)


def rarest_finding(population: Population) -> np.ndarray:
    """Return each image's rarest finding, "" without a finding: the strata of stratified draws."""
    holders = {name: np.unique(true.image) for name, true in population.true.items()}
    result = np.full(len(population.images), "", dtype=object)
    for name in sorted(holders, key=lambda name: -len(holders[name])):
        result[holders[name]] = name
    return result.astype(str)
