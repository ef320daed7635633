"""IoU and Dice of masks; gIoU, cIoU and N-Acc of many, to the digit as LISA's evaluation computes them.

Everything is made of two counts of pixels, the intersection I and the union U (:func:`overlap`).

* :func:`iou` is I / U and :func:`dice` 2 I / (I + U), as they are defined; of two empty masks the caller says what.
* :func:`lisa_iou` is I / (U + 1e-5) in float32, and 1 where both masks are empty. gIoU is its :func:`mean` over
  positives, N-Acc its mean over negatives (so the share of negatives without one predicted pixel), cIoU
  (:func:`cumulative_iou`) the positives' summed I over their summed U + 1e-10.
"""

from typing import NamedTuple

import numpy as np

IOU_EPSILON = np.float32(1e-5)
"""Added to each union (LISA)."""
CIOU_EPSILON = 1e-10
"""Added to the sum of the unions (LISA)."""


class Overlap(NamedTuple):
    """Pixels that two masks share, and pixels of either."""

    intersection: int
    union: int


def overlap(first: np.ndarray, second: np.ndarray) -> Overlap:
    """Return the overlap of two bool masks of one shape; torch's tensors do too, and are counted on their device."""
    return Overlap(int((first & second).sum()), int((first | second).sum()))


def overlap_packed(first: np.ndarray, second: np.ndarray) -> Overlap:
    """Return the overlap of two packed masks, uint8 (H, W / 8) each."""
    both = np.bitwise_count(first & second).sum(dtype=np.int64)
    either = np.bitwise_count(first | second).sum(dtype=np.int64)
    return Overlap(int(both), int(either))


def iou(intersection: int, union: int, *, empty: float = 0.0) -> float:
    """Return intersection over union, ``empty`` of two empty masks."""
    return intersection / union if union else empty


def dice(intersection: int, union: int, *, empty: float = 0.0) -> float:
    """Return 2 |A and B| / (|A| + |B|), ``empty`` of two empty masks; |A| + |B| is intersection + union."""
    return 2 * intersection / (intersection + union) if union else empty


def lisa_iou(intersection: np.ndarray, union: np.ndarray) -> np.ndarray:
    """Return LISA's IoU of pairs as float32, 1 where the union is 0; both arguments in pixels, of any one shape."""
    intersection, union = np.asarray(intersection, np.float32), np.asarray(union, np.float32)
    return intersection / (union + IOU_EPSILON) + (union == 0).astype(np.float32)


def mean(values: np.ndarray) -> float | None:
    """Return the mean (of gIoU, N-Acc, an accuracy), None of nothing."""
    return float(np.mean(values, dtype=np.float64)) if len(values) else None


def cumulative_iou(intersection: np.ndarray, union: np.ndarray) -> float | None:
    """Return cIoU of pairs, None of nothing."""
    if not len(union):
        return None
    return float(np.sum(intersection, dtype=np.float64) / (np.sum(union, dtype=np.float64) + CIOU_EPSILON))
