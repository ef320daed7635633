"""Measure one image. A measure is a numerator and a denominator, and a score is the ratio of their sums over images."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou
from cxr.ils.masks.thresholds import grey_level
from cxr.metrics import masks


class Measure(NamedTuple):
    """The numerator and denominator of a measure of one image; ``at``: the threshold, if there is one."""

    name: str
    numerator: float
    denominator: float = 1.0
    at: float | None = None


def measure_mask(mask: np.ndarray, region: np.ndarray) -> Iterator[Measure]:
    """Yield the measures of a lesion mask against the reference's region of the lesion, which is not empty.

    ``dice``, ``iou`` and ``covered`` are 0 for an image without a mask; ``dice_of_found``, ``iou_of_found`` and
    ``inside`` count only images with a mask.
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
    """Yield the measures of an anomaly map uint8 (H, W) against a region that is not empty.

    ``pointing``: whether the map's maximum is in the region (the fraction inside if several pixels have the maximum;
    0 for an empty map). ``chance``: the expected score of a random point in the ``lungs``. At each of ``steps``
    (fractions of 255): Dice, IoU, the anomalous fraction of the region, and, for images with anomalous pixels, the
    fraction of them inside the region.
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
    """Yield the recall of annotated boxes (M, 4), given detected boxes (N, 4) of any class with confidence (N,).

    An annotated box is found if a detected box with at least that confidence has at least that IoU with it.
    One detected box may match several annotated boxes.
    """
    overlaps = box_iou(boxes, reference_boxes)
    for iou in ious:
        best = np.where(overlaps >= iou, confidence[:, None], -1.0).max(axis=0, initial=-1.0)
        for step in steps:
            yield Measure(f"recall_iou{iou:g}", float((best >= step).sum()), float(len(reference_boxes)), at=step)


def count_false_boxes(
    boxes: np.ndarray, confidence: np.ndarray, reference_boxes: np.ndarray, iou: float, steps: Sequence[float]
) -> Iterator[Measure]:
    """Yield, per confidence, the number of detected boxes whose IoU with every annotated box is below ``iou``."""
    best = box_iou(boxes, reference_boxes).max(axis=1, initial=0.0) if len(boxes) else np.zeros(0)
    for step in steps:
        yield Measure(f"false_iou{iou:g}", float(((best < iou) & (confidence >= step)).sum()), at=step)
