"""Average precision (AP) of a detector for one class. Boxes are matched once; all bootstrap draws reuse the matches.

AP at an IoU is defined as in COCO: predictions are sorted by decreasing confidence; the precision at a recall is the
highest precision at that recall or above; AP is the mean over equally spaced recalls. A draw counts an image several
times or not at all; the copies of a prediction are ranked one after another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cxr.metrics.matching import Boxes, match_at_ious


class MatchedPredictions(NamedTuple):
    """The N predictions of one class, most confident first, and whether each hits a true box.

    ``image``: each prediction's image, int (N,); ``confidence``: (N,); ``hits``: whether it hits at each of T IoUs,
    bool (T, N); ``true``: number of true boxes of each image, int (images,).
    """

    image: np.ndarray
    confidence: np.ndarray
    hits: np.ndarray
    true: np.ndarray


def match_predictions(
    predicted: Boxes, confidence: np.ndarray, true: Boxes, images: int, ious: Sequence[float]
) -> MatchedPredictions:
    """Match predictions of one class in ``images`` images, numbered from 0. Equal confidences are ordered by image."""
    order = np.lexsort((predicted.image, -confidence))
    image, true_counts = predicted.image[order], np.bincount(true.image, minlength=images)
    hits = match_at_ious(Boxes(image, predicted.corners[order]), true, ious).hits
    return MatchedPredictions(image, confidence[order], hits, true_counts)


def average_precision(matches: MatchedPredictions, points: int = 101, draws: np.ndarray | None = None) -> np.ndarray:
    """Return AP, 0 to 1, float64 (R, T), for R bootstrap draws of the images and the T IoUs of ``matches``.

    ``draws`` int (R, images): how often each image counts; by default one draw in which each counts once. AP is NaN in
    a draw without a true box. ``points``: number of recalls, evenly spaced from 0 to 1.
    """
    draws = np.ones((1, len(matches.true)), np.int32) if draws is None else draws.astype(np.int32, copy=False)
    boxed = np.flatnonzero(matches.true)
    needed = _hits_needed(np.take(draws, boxed, axis=1).astype(np.float64) @ matches.true[boxed], points)
    # Precision is highest right after a hit, so that only hits need to be evaluated.
    weight = np.take(draws, matches.image, axis=1)  # row-major, unlike draws[:, image]
    num_predictions = np.cumsum(weight, axis=1, dtype=np.int32)
    ap_values = np.empty((len(draws), len(matches.hits)))
    for number, hits in enumerate(matches.hits):
        at = np.flatnonzero(hits)
        true = np.cumsum(np.take(weight, at, axis=1), axis=1, dtype=np.int32)
        precision = np.zeros((len(draws), len(at) + 1))
        np.divide(true, np.maximum(np.take(num_predictions, at, axis=1), 1), out=precision[:, :-1])
        ap_values[:, number] = _precision_at_recalls(true, precision, needed).mean(axis=1)
    ap_values[needed[:, 0] < 0] = np.nan
    return ap_values


def _hits_needed(positives: np.ndarray, points: int) -> np.ndarray:
    """Return the minimum number of hits, int32 (R, points), that reaches each recall; -1 in a draw without true boxes.

    ``positives`` (R,): number of true boxes per draw. Recalls are compared as floats, as in COCO's tools.
    """
    numbers, place = np.unique(positives, return_inverse=True)
    recalls, num_boxes = np.linspace(0.0, 1.0, points), numbers[:, None]
    needed = np.maximum(np.floor(recalls * num_boxes).astype(np.int32) - 1, 0)
    for _ in range(3):
        needed += needed / np.maximum(num_boxes, 1) < recalls
    return np.where(num_boxes > 0, needed, -1)[place]


def _precision_at_recalls(true: np.ndarray, precision: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """Return the highest precision (R, points) after ``needed`` or more hits; 0 if a draw never has so many hits.

    ``true`` (R, K): cumulative hits; ``precision`` (R, K + 1): precision at each hit, followed by a 0.
    """
    draws, count = true.shape
    row = np.arange(draws, dtype=np.int32)[:, None]
    # a single search for all draws: the hits of each draw are shifted to a separate range
    span = row * np.int32(true[:, -1:].max(initial=0) + needed.max(initial=0) + 1)
    at = np.searchsorted((true + span).ravel(), (np.maximum(needed, 0) + span).ravel()).reshape(needed.shape)
    starts = np.minimum(at, (row + 1) * count) + row  # precision has one more column than true
    best = np.maximum.reduceat(precision.ravel(), starts.ravel()).reshape(needed.shape)
    return np.maximum.accumulate(best[:, ::-1], axis=1)[:, ::-1]


def average_precision_by_image(matches: MatchedPredictions, number: int, points: int = 101) -> np.ndarray:
    """Return the AP of each image, float64 (images,), at the IoU with index ``number``; NaN if it has no true box."""
    ap_values = np.where(matches.true > 0, 0.0, np.nan)
    order = np.argsort(matches.image, kind="stable")
    ends = np.searchsorted(matches.image[order], np.arange(len(matches.true) + 1))
    for image in np.flatnonzero(matches.true):
        rows = order[ends[image] : ends[image + 1]]
        first, hits = np.zeros(len(rows), np.int64), matches.hits[number : number + 1, rows]
        alone = MatchedPredictions(first, matches.confidence[rows], hits, matches.true[image : image + 1])
        ap_values[image] = average_precision(alone, points)[0, 0]
    return ap_values


def recall_at(matches: MatchedPredictions, number: int, false_per_image: Sequence[float]) -> np.ndarray:
    """Return the recall, float64 (K,), for each of K limits of the false boxes per image, NaN if there is no true box.

    Boxes are accepted in order of confidence, ties together, up to the limit. ``number``: index of the IoU in ``hits``.
    """
    if not matches.true.sum():
        return np.full(len(false_per_image), np.nan)
    last = np.append(np.diff(matches.confidence) != 0, True)[: len(matches.confidence)]
    hits = np.cumsum(matches.hits[number])[last]
    false = np.cumsum(~matches.hits[number])[last]
    allowed = np.searchsorted(false, np.asarray(false_per_image) * len(matches.true), side="right")
    return np.concatenate([[0], hits])[allowed] / matches.true.sum()
