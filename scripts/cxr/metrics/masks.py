"""Overlap of masks and its means, to the digit as LISA's evaluation computes them.

A predicted and a reference mask are compared in one square. IoU of a pair is I / (U + 1e-5) in float32, and 1 where
both masks are empty. gIoU is its mean over positives, N-Acc its mean over negatives (so the share of negatives without
one predicted pixel), cIoU the positives' summed I over their summed U + 1e-10.
"""

import cv2
import numpy as np

IOU_EPSILON = np.float32(1e-5)
"""Added to each union (LISA)."""
CIOU_EPSILON = 1e-10
"""Added to the sum of the unions (LISA)."""


def resize_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """Return bool (size, size) of a mask (H, W) by nearest neighbour: pixel i is taken from floor(i * H / size)."""
    if mask.shape == (size, size):
        return mask.astype(bool)
    return cv2.resize(mask.astype(np.uint8), (size, size), interpolation=cv2.INTER_NEAREST).astype(bool)


def overlap(predicted: np.ndarray, reference: np.ndarray) -> tuple[int, int]:
    """Return intersection and union in pixels of two packed masks, uint8 (H, W / 8) each."""
    both = np.bitwise_count(predicted & reference).sum(dtype=np.int64)
    either = np.bitwise_count(predicted | reference).sum(dtype=np.int64)
    return int(both), int(either)


def iou(intersection: np.ndarray, union: np.ndarray) -> np.ndarray:
    """Return the IoU of pairs as float32, 1 where the union is 0; both arguments in pixels, of any one shape."""
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
