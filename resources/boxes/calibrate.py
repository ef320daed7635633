"""Calibration from a net's logits to confidences: a line per class, fitted on X-rays that the net was not trained with.

First, a confidence is the fraction of boxes that hit. Then classes without real boxes are lowered until few healthy
X-rays get a box, or switched off. Last, Lung Opacity is raised until healthy X-rays get :data:`FALSE` boxes on average.
"""

from typing import NamedTuple

import numpy as np
from measure import CONFIDENCE, HIT, Found, Line, Output, any_class, detect, of_class
from net import CLASSES

from cxr.detection.training import fit_platt
from cxr.geometry.boxes import box_iou
from cxr.metrics.matching import match_boxes

OWN_CLASS = ("Lung Opacity", "Nodule/Mass", "Cardiomegaly")
"""Classes whose boxes hit only a lesion of the same class. Boxes of other classes hit any lesion."""
UNSEEN = ("Consolidation", "Infiltration", "Atelectasis", "ILD", "Pleural effusion", "Nodule/Mass")
"""Classes for which there is no real box."""
QUIET, FOUND = 0.9, 0.5
"""Fraction of healthy X-rays that must stay below CONFIDENCE, and of painted lesions that must reach it."""
FALSE = 1.2
"""Mean number of boxes on a healthy X-ray up to which Lung Opacity is raised. It is never lowered."""
SILENT = (1.0, -40.0)
"""Line of a class that is switched off."""
PLAIN = np.ones(len(CLASSES)), np.zeros(len(CLASSES))
AT = np.log(CONFIDENCE / (1 - CONFIDENCE))


class Seen(NamedTuple):
    """The net's output for an X-ray, and its boxes without calibration and without suppression across classes."""

    output: Output
    plain: Found


def seen(outputs: list[Output]) -> list[Seen]:
    """Decode the outputs of X-rays once, for all steps of the calibration."""
    return [Seen(output, detect(output, PLAIN, across=1.0)) for output in outputs]


def _logit(confidence: np.ndarray | float) -> np.ndarray:
    clipped = np.clip(confidence, 1e-6, 1 - 1e-6)
    return np.log(clipped / (1 - clipped))


def fitted(films: list[Found], label: int) -> tuple[float, float]:
    """Return the line of a class with which the confidence is the fraction of its boxes that hit.

    X-rays without a true box have the same total weight as those with one, as if every second X-ray had a lesion.
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
    """Lower a class's line until the fraction QUIET of the healthy X-rays stays below CONFIDENCE.

    The class is switched off if then less than the fraction FOUND of the painted lesions reaches CONFIDENCE.
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
    """Raise the line of a class until healthy X-rays get FALSE boxes of all classes on average. Never lower it."""
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
    """Return the calibration of all classes, fitted without the X-rays of the fold ``without``.

    ``pools``: X-rays with boxes (nih), without a finding (healthy), and with painted lesions (painted). Lung Opacity is
    fitted on real X-rays only, other classes also on painted lesions.
    """
    left = {name: [film for film in pool if film.output.fold != without] for name, pool in pools.items()}
    nih, healthy, painted = ([film.plain for film in left[name]] for name in ("nih", "healthy", "painted"))
    painted = painted + [film.plain for film in phantoms]
    found = [fitted(nih + healthy + (painted if label else []), label) for label in range(len(CLASSES))]
    for label in map(CLASSES.index, UNSEEN):
        found[label] = lowered(found[label], label, healthy, painted)
    both = np.array(found)
    return raised((both[:, 0], both[:, 1]), [film.output for film in left["healthy"]])
