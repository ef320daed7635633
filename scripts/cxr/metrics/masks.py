"""IoU and Dice of two masks; gIoU, cIoU and N-Acc of many pairs of a predicted and a true mask, as LISA computes them.

All are computed from two pixel counts, the intersection I and the union U (:func:`overlap`).

* :func:`iou` is I / U and :func:`dice` is 2 I / (I + U); the caller chooses the value for two empty masks.
* :func:`lisa_iou` is I / (U + 1e-5) in float32, and 1 where both masks are empty.
* :data:`PAIR_METRICS` score many pairs. The tables, the page and the charts of the ILS evaluation show all of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

IOU_EPSILON = np.float32(1e-5)  # added to each union (LISA)
CIOU_EPSILON = 1e-10  # added to the sum of the unions (LISA)


class Overlap(NamedTuple):
    """Numbers of pixels in the intersection and in the union of two masks."""

    intersection: int
    union: int


def overlap(first: np.ndarray, second: np.ndarray) -> Overlap:
    """Return the overlap of two bool masks of the same shape. Torch tensors are counted on their device."""
    return Overlap(int((first & second).sum()), int((first | second).sum()))


def overlap_packed(first: np.ndarray, second: np.ndarray) -> Overlap:
    """Return the overlap of two bit-packed masks, both uint8 (H, W / 8)."""
    return Overlap(*(int(np.bitwise_count(part).sum(dtype=np.int64)) for part in (first & second, first | second)))


def iou(intersection: int, union: int, *, empty: float = 0.0) -> float:
    """Return intersection over union; ``empty`` if both masks are empty."""
    return intersection / union if union else empty


def dice(intersection: int, union: int, *, empty: float = 0.0) -> float:
    """Return 2 |A and B| / (|A| + |B|), where |A| + |B| is intersection + union; ``empty`` if both masks are empty."""
    return 2 * intersection / (intersection + union) if union else empty


def lisa_iou(intersection: np.ndarray, union: np.ndarray) -> np.ndarray:
    """Return intersection / (union + 1e-5) as float32, or 1 where the union is 0 (LISA). Arguments: pixel counts."""
    intersection, union = np.asarray(intersection, np.float32), np.asarray(union, np.float32)
    return intersection / (union + IOU_EPSILON) + (union == 0).astype(np.float32)


@dataclass(frozen=True)
class PairMetric:
    """A metric of many mask pairs: the sum of the pairs' numerators divided by the sum of their denominators.

    ``column``: name in tables; ``title``: name on the page and in charts; ``polarity``: ``positive`` if only pairs with
    a true mask count, ``negative`` if only pairs without one; ``limits``: range of values in per cent; ``epsilon``:
    number added to the sum of the denominators; ``terms``: function that takes LISA's IoU, the intersection and the
    union of each pair, all (N,), and returns the numerators and denominators (N,).
    """

    column: str
    title: str
    polarity: Literal["positive", "negative"]
    better: Literal["higher", "lower"]
    limits: tuple[float, float]
    epsilon: float
    terms: Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

    def score(self, iou: np.ndarray, intersection: np.ndarray, union: np.ndarray) -> float | None:
        """Return the metric, 0 to 1, of N pairs that have its ``polarity``; None if N is 0. The arguments are (N,)."""
        numerator, denominator = (np.sum(part, dtype=np.float64) for part in self.terms(iou, intersection, union))
        return float(numerator / (denominator + self.epsilon)) if len(union) else None


PAIR_METRICS: dict[str, PairMetric] = {}  # {column: metric}, in the order of the tables, the page and the charts


def pair_metric(
    title: str, polarity: Literal["positive", "negative"], *, better: Literal["higher", "lower"] = "higher",
    limits: tuple[float, float] = (0, 100), epsilon: float = 0.0,
) -> Callable:  # fmt: skip
    """Return a decorator that adds a metric to PAIR_METRICS, whose numerator and denominator the function returns."""

    def register(terms: Callable) -> Callable:
        name = terms.__name__
        PAIR_METRICS[name] = PairMetric(name, title, polarity, better, limits, epsilon, terms)
        return terms

    return register


@pair_metric("gIoU", "positive")
def giou(iou: np.ndarray, _intersection: np.ndarray, _union: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (numerators, denominators) of gIoU, the mean IoU of the pairs."""
    return iou, np.ones(len(iou))


@pair_metric("cIoU", "positive", epsilon=CIOU_EPSILON)
def ciou(_iou: np.ndarray, intersection: np.ndarray, union: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (numerators, denominators) of cIoU, the sum of the intersections over the sum of the unions."""
    return intersection, union


@pair_metric("N-Acc", "negative")
def n_acc(iou: np.ndarray, _intersection: np.ndarray, _union: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (numerators, denominators) of N-Acc, the fraction of pairs with an empty prediction, whose IoU is 1."""
    return iou, np.ones(len(iou))
