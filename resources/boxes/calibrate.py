"""From a net's logits to confidences: one line a class, fitted on films that the net had not seen.

A confidence is first the share of such boxes that hit. Then the classes of which no real box was seen are lowered until
healthy films are quiet, or silenced, and Lung Opacity is raised as far as healthy films bear it.
"""

from typing import NamedTuple

import numpy as np
from measure import CONFIDENCE, HIT, Found, Line, Output, any_class, detect, of_class
from net import CLASSES

from cxr.detection.training import fit_platt
from cxr.geometry.boxes import box_iou
from cxr.metrics.matching import match_boxes

OWN_CLASS = ("Lung Opacity", "Nodule/Mass", "Cardiomegaly")
"""Classes of which a box hits if it lies on a lesion of that class; of the others on any lesion."""
UNSEEN = ("Consolidation", "Infiltration", "Atelectasis", "ILD", "Pleural effusion", "Nodule/Mass")
"""Classes of which no real box was seen."""
QUIET, FOUND = 0.9, 0.5
"""Share of the healthy films that stay under CONFIDENCE, and of painted lesions that must reach it, else silence."""
FALSE = 1.2
"""Boxes of all classes that a healthy film is given on average: Lung Opacity is raised until then, never lowered."""
SILENT = (1.0, -40.0)
"""Line of a class that is never given."""
PLAIN = np.ones(len(CLASSES)), np.zeros(len(CLASSES))
AT = np.log(CONFIDENCE / (1 - CONFIDENCE))


class Seen(NamedTuple):
    """A film's output and its boxes before any calibration or suppression across classes."""

    output: Output
    plain: Found


def seen(outputs: list[Output]) -> list[Seen]:
    """Decode films once for all that follows."""
    return [Seen(output, detect(output, PLAIN, across=1.0)) for output in outputs]


def _logit(confidence: np.ndarray | float) -> np.ndarray:
    clipped = np.clip(confidence, 1e-6, 1 - 1e-6)
    return np.log(clipped / (1 - clipped))


def fitted(films: list[Found], label: int) -> tuple[float, float]:
    """Fit a class so that its confidence is the share of its boxes that hit.

    Films without a true box weigh as much, all together, as those with: as if every second film held a lesion.
    """
    chosen = [of_class(film, label) for film in films]
    if CLASSES[label] not in OWN_CLASS:
        chosen = [(*one[:2], any_class(film)[2]) for one, film in zip(chosen, films, strict=True)]
    hits = [match_boxes(boxes, truth, HIT)[0] for boxes, _, truth in chosen]
    sick = np.array([len(film.truth) > 0 for film in films])
    evenly = sick.sum() / max((~sick).sum(), 1)
    weights = [np.full(len(hit), 1.0 if lesion else evenly) for hit, lesion in zip(hits, sick, strict=True)]
    confidence = np.clip(np.concatenate([confidence for _, confidence, _ in chosen]), 1e-6, 1 - 1e-6)
    return fit_platt(confidence, np.concatenate(hits), np.concatenate(weights))


def lowered(line: tuple[float, float], label: int, healthy: list[Found], painted: list[Found]) -> tuple[float, float]:
    """Lower a class's line until QUIET of the healthy films stay under CONFIDENCE.

    A class of which fewer than FOUND of the painted lesions then reach it is silenced.
    """
    slope, offset = line
    noise = np.array([of_class(film, label)[1].max(initial=1e-6) for film in healthy])
    offset = min(offset, AT - slope * _logit(np.quantile(noise, QUIET)))
    best = []
    for film in painted:
        boxes, confidence, truth = of_class(film, label)
        best += [confidence[row >= HIT].max(initial=1e-6) for row in box_iou(truth, boxes)]
    return (slope, offset) if np.mean(slope * _logit(np.array(best)) + offset >= AT) >= FOUND else SILENT


def raised(lines: Line, healthy: list[Output], label: int = 0) -> Line:
    """Raise a class until healthy films are given FALSE boxes of all classes on average; never lower it."""
    slope, offset = lines

    def boxes(by: float) -> float:
        moved = offset.copy()
        moved[label] += by
        return float(np.mean([(detect(one, (slope, moved)).confidence >= CONFIDENCE).sum() for one in healthy]))

    low, high = 0.0, 6.0
    for _ in range(8):
        middle = (low + high) / 2
        low, high = (middle, high) if boxes(middle) <= FALSE else (low, middle)
    moved = offset.copy()
    moved[label] += low
    return slope, moved


def lines(pools: dict[str, list[Seen]], phantoms: list[Seen], without: int | None = None) -> Line:
    """Return the calibration of all classes, made without one fold.

    ``pools``: films with boxes (nih), without a finding (healthy), painted. Lung Opacity is fitted on real films alone,
    the others on painted ones too.
    """
    left = {name: [film for film in pool if film.output.fold != without] for name, pool in pools.items()}
    nih, healthy, painted = ([film.plain for film in left[name]] for name in ("nih", "healthy", "painted"))
    painted = painted + [film.plain for film in phantoms]
    found = [fitted(nih + healthy + (painted if label else []), label) for label in range(len(CLASSES))]
    for label in map(CLASSES.index, UNSEEN):
        found[label] = lowered(found[label], label, healthy, painted)
    both = np.array(found)
    return raised((both[:, 0], both[:, 1]), [film.output for film in left["healthy"]])
