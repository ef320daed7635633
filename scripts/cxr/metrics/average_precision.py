"""Average precision (AP) of a detector, one class at a time: matching is done once, and any draw of images re-uses it.

AP at an IoU is COCO's: predictions in order of confidence, the precision at a recall is the highest one at that recall
or a higher one, and the mean is taken over equally spaced recalls. A draw counts an image several times or not at all;
copies of a prediction follow one another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.matching import Boxes, take


class Matched(NamedTuple):
    """The predictions of one class, the most confident first, and what each hit.

    image int (N,), confidence (N,), hits bool (T, N) at T IoUs; true int (images,): true boxes of each image.
    """

    image: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray
    true: np.ndarray


def matched(predicted: Boxes, confidence: np.ndarray, true: Boxes, images: int, ious: Sequence[float]) -> Matched:
    """Match the predictions of one class in a set of images, which are numbered from 0 to ``images`` - 1.

    Equal confidences keep the order of the images, and within an image the order of the predictions.
    """
    order = np.lexsort((predicted.image, -confidence))
    sorted_ones = Boxes(predicted.image[order], predicted.corners[order])
    hits = take(sorted_ones, true, ious).hits
    return Matched(sorted_ones.image, confidence[order], hits, np.bincount(true.image, minlength=images))


def average_precision(found: Matched, points: int = 101, draws: np.ndarray | None = None) -> np.ndarray:
    """Return AP, between 0 and 1, float64 (R, T) for R draws of the images and the T IoUs of ``found``.

    ``draws`` int (R, images): how often each image counts; by default one draw in which each counts once. AP is NaN in
    a draw without a true box. ``points``: number of recalls, from 0 to 1.
    """
    draws = np.ones((1, len(found.true)), np.int32) if draws is None else draws.astype(np.int32, copy=False)
    boxed = np.flatnonzero(found.true)
    needed = _needed(np.take(draws, boxed, axis=1).astype(np.float64) @ found.true[boxed], points)
    # Precision is highest right after a hit, so only hits are looked at.
    weight = np.take(draws, found.image, axis=1)  # in the order of rows, unlike draws[:, image]
    shown = np.cumsum(weight, axis=1, dtype=np.int32)
    result = np.empty((len(draws), len(found.hits)))
    for number, hits in enumerate(found.hits):
        at = np.flatnonzero(hits)
        true = np.cumsum(np.take(weight, at, axis=1), axis=1, dtype=np.int32)
        precision = np.zeros((len(draws), len(at) + 1))
        np.divide(true, np.maximum(np.take(shown, at, axis=1), 1), out=precision[:, :-1])
        result[:, number] = _at_recalls(true, precision, needed).mean(axis=1)
    result[needed[:, 0] < 0] = np.nan
    return result


def _needed(positives: np.ndarray, points: int) -> np.ndarray:
    """Return the least number of hits, int32 (R, points), that is each recall; -1 for a draw (R,) without true boxes.

    The recalls are compared as COCO's tools do, in floats.
    """
    numbers, place = np.unique(positives, return_inverse=True)
    recalls, found = np.linspace(0.0, 1.0, points), numbers[:, None]
    needed = np.maximum(np.floor(recalls * found).astype(np.int32) - 1, 0)
    for _ in range(3):
        needed += needed / np.maximum(found, 1) < recalls
    return np.where(found > 0, needed, -1)[place]


def _at_recalls(true: np.ndarray, precision: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """Return the highest precision (R, points) from where each draw's hits reach what is ``needed``; 0 if they do not.

    ``true`` (R, K): hits so far; ``precision`` (R, K + 1): that at each of them, and a 0 at the end.
    """
    draws, count = true.shape
    row = np.arange(draws, dtype=np.int32)[:, None]
    # one search for all draws: each draw's hits lie in a range of their own
    span = row * np.int32(true[:, -1:].max(initial=0) + needed.max(initial=0) + 1)
    at = np.searchsorted((true + span).ravel(), (np.maximum(needed, 0) + span).ravel()).reshape(needed.shape)
    starts = np.minimum(at, (row + 1) * count) + row  # rows of precision are longer by one
    best = np.maximum.reduceat(precision.ravel(), starts.ravel()).reshape(needed.shape)
    return np.maximum.accumulate(best[:, ::-1], axis=1)[:, ::-1]


def sample_precision(found: Matched, number: int, points: int = 101) -> np.ndarray:
    """Return each image's own AP, float64 (images,), at the IoU of that number; NaN for an image without a true box."""
    result = np.where(found.true > 0, 0.0, np.nan)
    order = np.argsort(found.image, kind="stable")
    ends = np.searchsorted(found.image[order], np.arange(len(found.true) + 1))
    for image in np.flatnonzero(found.true):
        own = order[ends[image] : ends[image + 1]]
        first, hits = np.zeros(len(own), np.int64), found.hits[number : number + 1, own]
        alone = Matched(first, found.confidence[own], hits, found.true[image : image + 1])
        result[image] = average_precision(alone, points)[0, 0]
    return result


def recall_at(found: Matched, number: int, false_per_image: Sequence[float]) -> np.ndarray:
    """Return the recall, float64 (K,), at the lowest confidence that leaves at most so many false boxes an image.

    ``number``: that of the IoU. Predictions of one confidence are shown together. NaN without a true box.
    """
    if not found.true.sum():
        return np.full(len(false_per_image), np.nan)
    last = np.append(np.diff(found.confidence) != 0, True)[: len(found.confidence)]
    hits = np.cumsum(found.hits[number])[last]
    false = np.cumsum(~found.hits[number])[last]
    allowed = np.searchsorted(false, np.asarray(false_per_image) * len(found.true), side="right")
    return np.concatenate([[0], hits])[allowed] / found.true.sum()
