"""IoU and Dice of masks; gIoU, cIoU and N-Acc of many pairs, to the digit as in LISA's evaluation.

All are computed from two pixel counts, the intersection I and the union U (:func:`overlap`).

* :func:`iou` is I / U and :func:`dice` is 2 I / (I + U); the caller chooses the value for two empty masks.
* :func:`lisa_iou` is I / (U + 1e-5) in float32, and 1 where both masks are empty. gIoU is its :func:`mean_or_none` over
  positives. N-Acc is its mean over negatives, which is the fraction of negatives without a predicted pixel. cIoU
  (:func:`cumulative_iou`) is the positives' summed I over their summed U + 1e-10.
"""

from typing import NamedTuple

import numpy as np

IOU_EPSILON = np.float32(1e-5)
"""Added to each union (LISA)."""
CIOU_EPSILON = 1e-10
"""Added to the sum of the unions (LISA)."""


class Overlap(NamedTuple):
    """Numbers of pixels in the intersection and in the union of two masks."""

    intersection: int
    union: int


def overlap(first: np.ndarray, second: np.ndarray) -> Overlap:
    """Return the overlap of two bool masks of one shape. Torch tensors work too, and are counted on their device."""
    return Overlap(int((first & second).sum()), int((first | second).sum()))


def overlap_packed(first: np.ndarray, second: np.ndarray) -> Overlap:
    """Return the overlap of two packed masks, uint8 (H, W / 8) each."""
    both = np.bitwise_count(first & second).sum(dtype=np.int64)
    either = np.bitwise_count(first | second).sum(dtype=np.int64)
    return Overlap(int(both), int(either))


def iou(intersection: int, union: int, *, empty: float = 0.0) -> float:
    """Return intersection over union; ``empty`` if both masks are empty."""
    return intersection / union if union else empty


def dice(intersection: int, union: int, *, empty: float = 0.0) -> float:
    """Return 2 |A and B| / (|A| + |B|), ``empty`` if both masks are empty; |A| + |B| is intersection + union."""
    return 2 * intersection / (intersection + union) if union else empty


def lisa_iou(intersection: np.ndarray, union: np.ndarray) -> np.ndarray:
    """Return LISA's IoU of pairs as float32, 1 where the union is 0; both arguments in pixels, of any one shape."""
    intersection, union = np.asarray(intersection, np.float32), np.asarray(union, np.float32)
    return intersection / (union + IOU_EPSILON) + (union == 0).astype(np.float32)


def mean_or_none(values: np.ndarray) -> float | None:
    """Return the mean of values (gIoU, N-Acc or an accuracy); None without values."""
    return float(np.mean(values, dtype=np.float64)) if len(values) else None


def cumulative_iou(intersection: np.ndarray, union: np.ndarray) -> float | None:
    """Return the cIoU of pairs; None without pairs."""
    if not len(union):
        return None
    return float(np.sum(intersection, dtype=np.float64) / (np.sum(union, dtype=np.float64) + CIOU_EPSILON))
