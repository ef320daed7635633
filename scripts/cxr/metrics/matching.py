"""Matching predicted boxes with true boxes, at several IoUs at once and in all images at once.

The most confident box chooses first. It takes the free true box of the highest IoU, if that reaches the asked IoU; of
true boxes of the same IoU it takes the last, as COCO's tools do. A true box is taken once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cxr.geometry.boxes import paired_iou


class Boxes(NamedTuple):
    """Boxes of one class in a set of images: index of the image int (N,), corners (N, 4: x1, y1, x2, y2)."""

    image: np.ndarray
    corners: np.ndarray


class Taken(NamedTuple):
    """Of T IoUs, which predictions hit, bool (T, N), and which true boxes were found, bool (T, M)."""

    hits: np.ndarray
    found: np.ndarray


def take(predicted: Boxes, true: Boxes, ious: Sequence[float]) -> Taken:
    """Match predictions, the most confident first, with true boxes at each of ``ious``.

    The order of the predictions of one image counts; that of the images does not.
    """
    hits = np.zeros((len(ious), len(predicted.image)), bool)
    matched = np.zeros((len(ious), len(true.image)), bool)
    thresholds = np.asarray(ious, np.float64)[:, None]
    predicted_index, true_index = _pairs(predicted.image, true.image)
    overlap = paired_iou(predicted.corners[predicted_index], true.corners[true_index])
    near = overlap >= min(ious, default=0.0)
    predicted_index, true_index, overlap = predicted_index[near], true_index[near], overlap[near]
    # Pairs lie side by side by prediction. In a round each image's next prediction chooses, so no two want one box.
    for pairs, starts in _rounds(predicted_index, predicted.image):
        value = np.where(matched[:, true_index[pairs]], -1.0, overlap[pairs])
        best = np.maximum.reduceat(value, starts, axis=1)
        accepted = best >= thresholds
        run = np.diff(np.append(starts, len(pairs)))
        equal = value == np.repeat(best, run, axis=1)
        last = np.maximum.reduceat(np.where(equal, np.arange(len(pairs)), -1), starts, axis=1)
        row, column = np.nonzero(accepted)
        matched[row, true_index[pairs[last[row, column]]]] = True
        hits[row, predicted_index[pairs[starts[column]]]] = True
    return Taken(hits, matched)


def _pairs(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of all pairs of one image, by the first's index and then by the second's."""
    order = np.argsort(second, kind="stable")
    low, high = (np.searchsorted(second[order], first, side) for side in ("left", "right"))
    count = high - low
    first_index = np.repeat(np.arange(len(first)), count)
    within = np.arange(len(first_index)) - np.repeat(np.cumsum(count) - count, count)
    return first_index, order[np.repeat(low, count) + within]


def _rounds(predicted_index: np.ndarray, image: np.ndarray):
    """Yield of each round the positions of its pairs and where each prediction's pairs start among them."""
    boxes, starts, counts = np.unique(predicted_index, return_index=True, return_counts=True)
    order = np.argsort(image[boxes], kind="stable")
    sorted_images = image[boxes][order]
    place = np.arange(len(sorted_images)) - np.searchsorted(sorted_images, sorted_images)
    turn = np.empty(len(boxes), np.int64)
    turn[order] = place
    for number in range(int(turn.max(initial=-1)) + 1):
        members = np.flatnonzero(turn == number)
        ends = np.cumsum(counts[members])
        within = np.arange(ends[-1]) - np.repeat(ends - counts[members], counts[members])
        yield np.repeat(starts[members], counts[members]) + within, ends - counts[members]
