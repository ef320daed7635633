"""Matching of predicted boxes to true boxes at several IoU thresholds, and the recall and precision that follow.

Predicted boxes are matched in order of decreasing confidence. Each is matched to the unmatched true box of the highest
IoU, the last among ties as in COCO's tools, if that IoU reaches the threshold.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import paired_iou


class Boxes(NamedTuple):
    """N boxes of one class in several images: index of each box's image, int (N,); corners (N, 4: x1, y1, x2, y2)."""

    image: np.ndarray
    corners: np.ndarray


class Matches(NamedTuple):
    """At each of T IoU thresholds: which predictions hit, bool (T, N), and which true boxes were found, bool (T, M)."""

    hits: np.ndarray
    found: np.ndarray


def match_at_ious(predicted: Boxes, true: Boxes, ious: Sequence[float]) -> Matches:
    """Match predictions with true boxes at each IoU threshold. Each image's predictions must be sorted, best first."""
    hits = np.zeros((len(ious), len(predicted.image)), bool)
    matched = np.zeros((len(ious), len(true.image)), bool)
    thresholds = np.asarray(ious, np.float64)[:, None]
    predicted_index, true_index = _pairs_within_images(predicted.image, true.image)
    overlap = paired_iou(predicted.corners[predicted_index], true.corners[true_index])
    near = overlap >= min(ious, default=0.0)
    predicted_index, true_index, overlap = predicted_index[near], true_index[near], overlap[near]
    # Pairs are sorted by prediction. A round matches the next prediction of each image, so none compete for a box.
    for pairs, starts in _match_rounds(predicted_index, predicted.image):
        value = np.where(matched[:, true_index[pairs]], -1.0, overlap[pairs])
        best = np.maximum.reduceat(value, starts, axis=1)
        accepted = best >= thresholds
        run = np.diff(np.append(starts, len(pairs)))
        equal = value == np.repeat(best, run, axis=1)
        last = np.maximum.reduceat(np.where(equal, np.arange(len(pairs)), -1), starts, axis=1)
        row, column = np.nonzero(accepted)
        matched[row, true_index[pairs[last[row, column]]]] = True
        hits[row, predicted_index[pairs[starts[column]]]] = True
    return Matches(hits, matched)


def _pairs_within_images(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices (first, second) of all pairs in the same image, sorted by first, then by second."""
    order = np.argsort(second, kind="stable")
    low, high = (np.searchsorted(second[order], first, side) for side in ("left", "right"))
    count = high - low
    first_index = np.repeat(np.arange(len(first)), count)
    within = np.arange(len(first_index)) - np.repeat(np.cumsum(count) - count, count)
    return first_index, order[np.repeat(low, count) + within]


def _match_rounds(predicted_index: np.ndarray, image: np.ndarray):
    """Yield (pair indices, start of each prediction in them) for each round. Round k has the k-th box of each image."""
    boxes, starts, counts = np.unique(predicted_index, return_index=True, return_counts=True)
    order, turn = np.argsort(image[boxes], kind="stable"), np.empty(len(boxes), np.int64)
    sorted_images = image[boxes][order]
    turn[order] = np.arange(len(sorted_images)) - np.searchsorted(sorted_images, sorted_images)
    for number in range(int(turn.max(initial=-1)) + 1):
        members = np.flatnonzero(turn == number)
        ends = np.cumsum(counts[members])
        within = np.arange(ends[-1]) - np.repeat(ends - counts[members], counts[members])
        yield np.repeat(starts[members], counts[members]) + within, ends - counts[members]


def match_boxes(boxes: np.ndarray, truth: np.ndarray, iou: float) -> tuple[np.ndarray, np.ndarray]:
    """Match the boxes of one image (N, 4), most confident first, with true boxes (M, 4) at the IoU threshold ``iou``.

    Returns which boxes hit a true box, bool (N,), and which true boxes are hit, bool (M,).
    """
    predicted, reference = (Boxes(np.zeros(len(part), np.int64), part) for part in (boxes, truth))
    hits, matched = match_at_ious(predicted, reference, [iou])
    return hits[0], matched[0]


def score_detections(
    images: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]], *, iou: float, confidence: float
) -> dict[str, float]:
    """Return the numbers of images and true boxes, recall, precision and false boxes per image.

    Each image is (boxes (N, 4), most confident first, confidences (N,), true boxes (M, 4)). Boxes below ``confidence``
    are ignored. A box is right if its IoU with a true box that no earlier box has hit is at least ``iou``.
    """
    total = true = hits = num_predicted = 0
    for boxes, confidences, truth in images:
        boxes = boxes[confidences >= confidence]
        hit, matched = match_boxes(boxes, truth, iou)
        total, true = total + 1, true + len(truth)
        hits, num_predicted = hits + int(matched.sum()), num_predicted + len(hit)
    return {
        "images": total,
        "boxes": true,
        "recall": hits / max(true, 1),
        "precision": hits / max(num_predicted, 1),
        "false_per_image": (num_predicted - hits) / max(total, 1),
    }
