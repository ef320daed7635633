"""Measure one image. Each measure is (top, below), so that a score is a ratio of sums over images."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import box_iou
from cxr.ils.masks.thresholds import grey_level
from cxr.metrics import masks


class Value(NamedTuple):
    """A measure of one image: ``top`` and ``below`` are summed over images; ``at``: the threshold, if there is one."""

    measure: str
    top: float
    below: float = 1.0
    at: float | None = None


def of_mask(mask: np.ndarray, region: np.ndarray) -> Iterator[Value]:
    """Yield the measures of a lesion mask on an image where the reference has the lesion (``region`` not empty).

    ``dice``, ``iou`` and ``covered`` are 0 for an image without a mask; ``dice_of_found``, ``iou_of_found`` and
    ``inside`` count only images with a mask.
    """
    has_mask = bool(mask.any())
    overlap = masks.overlap(mask, region)
    dice, iou, shared = masks.dice(*overlap), masks.iou(*overlap), overlap.intersection
    yield Value("found", float(has_mask))
    yield Value("dice", dice)
    yield Value("iou", iou)
    yield Value("covered", shared / int(region.sum()))
    yield Value("dice_of_found", dice, float(has_mask))
    yield Value("iou_of_found", iou, float(has_mask))
    yield Value("inside", shared / int(mask.sum()) if has_mask else 0.0, float(has_mask))


def of_map(anomaly: np.ndarray, region: np.ndarray, lungs: np.ndarray, steps: Sequence[float]) -> Iterator[Value]:
    """Yield the measures of an anomaly map uint8 (H, W) against a region that is not empty.

    ``pointing``: whether its largest value lies in the region (the share inside if several pixels have that value; 0
    for an empty map). ``chance``: the share of the ``lungs`` in the region, which is the expected score of a random
    point in them. At each of ``steps`` (shares of 255): Dice, IoU, the share of the region that is anomalous, and, for
    images with anomalous pixels, the share of these that lie in the region.
    """
    top = anomaly.max()
    yield Value("pointing", float(region[anomaly == top].mean()) if top else 0.0)
    if lungs.any():
        yield Value("chance", float(region[lungs].mean()))
    for step in steps:
        marked = anomaly >= grey_level(step)
        overlap = masks.overlap(marked, region)
        shared = overlap.intersection
        yield Value("dice", masks.dice(*overlap), at=step)
        yield Value("iou", masks.iou(*overlap), at=step)
        yield Value("covered", shared / int(region.sum()), at=step)
        yield Value("inside", shared / int(marked.sum()) if shared else 0.0, float(marked.any()), at=step)


def of_boxes(
    boxes: np.ndarray,
    confidence: np.ndarray,
    reference_boxes: np.ndarray,
    ious: Sequence[float],
    steps: Sequence[float],
) -> Iterator[Value]:
    """Yield the recall of annotated boxes (M, 4) by detected boxes (N, 4) with confidence (N,), whatever their class.

    An annotated box is found at a confidence if a detected box of at least that confidence overlaps it by the IoU. One
    detected box may find several.
    """
    overlaps = box_iou(boxes, reference_boxes)
    for iou in ious:
        best = np.where(overlaps >= iou, confidence[:, None], -1.0).max(axis=0, initial=-1.0)
        for step in steps:
            yield Value(f"recall_iou{iou:g}", float((best >= step).sum()), float(len(reference_boxes)), at=step)


def false_boxes(
    boxes: np.ndarray, confidence: np.ndarray, reference_boxes: np.ndarray, iou: float, steps: Sequence[float]
) -> Iterator[Value]:
    """Yield the number of detected boxes per image that overlap no annotated box by ``iou``."""
    best = box_iou(boxes, reference_boxes).max(axis=1, initial=0.0) if len(boxes) else np.zeros(0)
    for step in steps:
        yield Value(f"false_iou{iou:g}", float(((best < iou) & (confidence >= step)).sum()), at=step)
