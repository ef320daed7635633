"""Measure one image. A measure has a numerator and a denominator; a score is the ratio of their sums over images."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou
from cxr.ils.masks.thresholds import grey_level
from cxr.metrics import masks


class Measure(NamedTuple):
    """One image's numerator and denominator of the score ``name``. ``at`` is the score's threshold, if it has one."""

    name: str
    numerator: float
    denominator: float = 1.0
    at: float | None = None


def measure_mask(mask: np.ndarray, region: np.ndarray) -> Iterator[Measure]:
    """Yield the measures of a lesion mask, which may be empty, against the annotated region of the lesion.

    Both are bool (H, W). ``found`` is 1 if the mask has a pixel, else 0. ``covered`` is the fraction of the region that
    is in the mask, and ``inside`` the fraction of the mask that is in the region. An empty mask counts as 0 in
    ``dice``, ``iou`` and ``covered``, and does not count in ``inside``, ``dice_of_found`` and ``iou_of_found``.
    """
    has_mask = bool(mask.any())
    overlap = masks.overlap(mask, region)
    dice, iou, shared = masks.dice(*overlap), masks.iou(*overlap), overlap.intersection
    yield Measure("found", float(has_mask))
    yield Measure("dice", dice)
    yield Measure("iou", iou)
    yield Measure("covered", shared / int(region.sum()))
    yield Measure("dice_of_found", dice, float(has_mask))
    yield Measure("iou_of_found", iou, float(has_mask))
    yield Measure("inside", shared / int(mask.sum()) if has_mask else 0.0, float(has_mask))


def measure_map(
    anomaly: np.ndarray, region: np.ndarray, lungs: np.ndarray, steps: Sequence[float]
) -> Iterator[Measure]:
    """Yield the measures of an anomaly map, uint8 (H, W), against a region that is not empty, bool (H, W).

    ``pointing`` is the fraction of the pixels with the map's maximum that are in the region, or 0 if the map is 0
    everywhere. ``chance`` is the expected score of a random point in the ``lungs``, bool (H, W). Each of ``steps`` is a
    threshold, as a fraction of 255, from which a pixel is anomalous. ``dice`` and ``iou`` compare the anomalous pixels
    with the region, ``covered`` is the fraction of the region that is anomalous, and ``inside`` is the fraction of the
    anomalous pixels that are in the region.
    """
    top = anomaly.max()
    yield Measure("pointing", float(region[anomaly == top].mean()) if top else 0.0)
    if lungs.any():
        yield Measure("chance", float(region[lungs].mean()))
    for step in steps:
        marked = anomaly >= grey_level(step)
        overlap = masks.overlap(marked, region)
        shared = overlap.intersection
        yield Measure("dice", masks.dice(*overlap), at=step)
        yield Measure("iou", masks.iou(*overlap), at=step)
        yield Measure("covered", shared / int(region.sum()), at=step)
        yield Measure("inside", shared / int(marked.sum()) if shared else 0.0, float(marked.any()), at=step)


def measure_boxes(
    boxes: np.ndarray,
    confidence: np.ndarray,
    reference_boxes: np.ndarray,
    ious: Sequence[float],
    steps: Sequence[float],
) -> Iterator[Measure]:
    """Yield how many annotated boxes (M, 4) are found by detected boxes (N, 4) with confidences (N,).

    There is a measure for each IoU in ``ious`` and each minimum confidence in ``steps``. An annotated box is found if
    a detected box, of any class and at least this confidence, has at least this IoU with it. One detected box may
    match several.
    """
    overlaps = box_iou(boxes, reference_boxes)
    for iou in ious:
        best = np.where(overlaps >= iou, confidence[:, None], -1.0).max(axis=0, initial=-1.0)
        for step in steps:
            yield Measure(f"recall_iou{iou:g}", float((best >= step).sum()), float(len(reference_boxes)), at=step)


def count_false_boxes(
    boxes: np.ndarray, confidence: np.ndarray, reference_boxes: np.ndarray, iou: float, steps: Sequence[float]
) -> Iterator[Measure]:
    """Yield, for each minimum confidence in ``steps``, the number of false boxes: detected boxes whose IoU with every
    annotated box is below ``iou``."""
    best = box_iou(boxes, reference_boxes).max(axis=1, initial=0.0) if len(boxes) else np.zeros(0)
    for step in steps:
        yield Measure(f"false_iou{iou:g}", float(((best < iou) & (confidence >= step)).sum()), at=step)
