"""Scores of the detector: true boxes that it finds, boxes on healthy X-rays, and classes of whole X-rays.

Every interval is a 95 % bootstrap interval over patients. A patient is drawn with all X-rays.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from data import CELL, FRAME, Sample
from net import CLASSES, GROUPS

from cxr.detection.grid import decode_boxes, select_boxes
from cxr.metrics.labels import auroc
from cxr.metrics.matching import match_boxes, score_detections

HEART = CLASSES.index("Cardiomegaly")
CHOICE = {"floor": 1e-3, "iou": 0.5, "most": 100, "across": 0.5, "apart": (HEART,)}
"""How boxes are selected: `boxes.floor`, `nms_iou`, `max_boxes`, `lite.region_iou`; the heart is an excluded class."""
CONFIDENCE, HIT, DRAWS = 0.2, 0.3, 2000
Line = tuple[np.ndarray, np.ndarray]
"""The calibration of all classes: slopes and offsets of the logits, both (classes,)."""


class Output(NamedTuple):
    """The output of a net that was not trained with the X-ray: logits (C, n, n), distances (4 groups, n, n)."""

    logit: np.ndarray
    distance: np.ndarray
    film: Sample
    fold: int


class Found(NamedTuple):
    """Boxes in frame pixels, confidences and class indices of an X-ray, best first, and its true boxes (M, 5)."""

    boxes: np.ndarray
    confidence: np.ndarray
    classes: np.ndarray
    truth: np.ndarray
    patient: str


def confidences(output: Output, line: Line) -> np.ndarray:
    """Return the calibrated confidences (classes, n, n)."""
    slope, offset = line
    return 1 / (1 + np.exp(-(output.logit * slope[:, None, None] + offset[:, None, None])))


def detect(output: Output, line: Line, **changes) -> Found:
    """Return the boxes of an X-ray as the engine selects them, with a calibration. ``changes``: changes of CHOICE."""
    chosen = select_boxes(
        decode_boxes(output.distance, list(GROUPS), FRAME), confidences(output, line), **CHOICE | changes
    )
    truth = np.array(output.film.boxes, np.float64).reshape(-1, 5)
    return Found(*chosen, truth * np.array([1, *[CELL] * 4]), output.film.patient)


def of_class(film: Found, label: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes, confidences and true boxes (M, 4) of one class."""
    chosen = film.classes == label
    return film.boxes[chosen], film.confidence[chosen], film.truth[film.truth[:, 0] == label][:, 1:]


def any_class(film: Found) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return boxes, confidences and true boxes of all classes except the heart, which Algorithm 1 does not compare."""
    chosen, true = film.classes != HEART, film.truth[:, 0] != HEART
    return film.boxes[chosen], film.confidence[chosen], np.unique(film.truth[true][:, 1:], axis=0)


def interval(value: Callable[[np.ndarray], float], patients: list[str]) -> list[float]:
    """Return the interval of ``value``, which is a function of how often each X-ray is drawn, (N,)."""
    names, owner = np.unique(patients, return_inverse=True)
    random = np.random.default_rng(0)
    drawn = [np.bincount(random.integers(0, len(names), len(names)), minlength=len(names))[owner] for _ in range(DRAWS)]
    return [round(float(q), 3) for q in np.nanquantile([value(times) for times in drawn], (0.025, 0.975))]


def table(films: list[Found], view: Callable[[Found], tuple]) -> dict:
    """Return scores of X-rays with true boxes at two IoUs and both confidences of Algorithm 1 (0.01 is for edema)."""
    images, patients, result = [view(film) for film in films], [film.patient for film in films], {}
    for iou in (0.3, 0.5):
        for confidence in (CONFIDENCE, 0.01):
            one = {
                name: round(value, 3)
                for name, value in score_detections(images, iou=iou, confidence=confidence).items()
            }
            rows = [match_boxes(boxes[sure >= confidence], truth, iou)[1] for boxes, sure, truth in images]
            hits, true = np.array([row.sum() for row in rows]), np.array([len(row) for row in rows])
            if true.any():
                one["recall_95"] = interval(lambda n, h=hits, t=true: (n @ h) / max(n @ t, 1), patients)
            result[f"iou {iou} confidence {confidence}"] = one
    return result


def healthy_table(films: list[Found]) -> dict:
    """Return the numbers of boxes on healthy X-rays, where all boxes are false."""
    count = np.array([(film.confidence >= CONFIDENCE).sum() for film in films])
    heart = np.array([(film.confidence[film.classes == HEART] >= CONFIDENCE).sum() for film in films])
    patients = [film.patient for film in films]
    return {
        "films": len(films),
        "patients": len(set(patients)),
        "boxes": round(float(count.mean()), 3),
        "boxes_95": interval(lambda n: (n @ count) / n.sum(), patients),
        "boxes_without_heart": round(float((count - heart).mean()), 3),
        "films_without_a_box": round(float((count == 0).mean()), 3),
        "films_with_a_box_of": {
            name: round(float(np.mean([(of_class(film, k)[1] >= CONFIDENCE).any() for film in films])), 3)
            for k, name in enumerate(CLASSES)
        },
    }


def told_apart(labelled: list[Output], healthy: list[Output], line: Line) -> dict:
    """Return how well each class's largest confidence separates X-rays with its label from healthy and other X-rays."""
    result = {}
    for label, name in enumerate(CLASSES):
        said = [output for output in labelled if output.film.film.get(label)]
        rest = [output for output in labelled if output.film.film.get(label) is False]
        best = [np.array([confidences(o, line)[label].max() for o in part]) for part in (said, rest, healthy)]
        result[name] = {
            "films": len(said),
            "auroc_healthy": round(auroc(best[0], best[2]), 3) if len(said) else None,
            "auroc_other_sick": round(auroc(best[0], best[1]), 3) if len(said) and len(rest) else None,
        }
    return result
