"""Soft masks of a job's boxes (the paper's section 3.5 and appendix E)."""

import cv2
import numpy as np

from cxr.geometry.boxes import clip_boxes

CUT = 3
"""Standard deviations at which the kernel of ``gauss`` is cut."""


def soft_mask(boxes: np.ndarray, shape: tuple[int, int], *, blur: str, r: float, beta: float) -> np.ndarray:
    """Return the edit weight of each pixel, float32 ``shape`` in 0..1. ``boxes`` (N, 4) in pixels, half-open.

    The result is the pixelwise maximum of one mask per box, each with the maximum 1. ``blur``: ``none`` is 1 where a
    pixel's centre lies in the box; ``gauss`` blurs that, with the deviation half the side (whole pixels) over ``r``
    along each axis; ``ggauss`` is exp(-(|t| / (sqrt(2) deviation)) ** beta) of the distance t from the box's centre.
    """
    mask = np.zeros(shape, np.float32)
    for box in np.asarray(boxes, np.float64).reshape(-1, 4):
        np.maximum(mask, _box_mask(box, shape, blur, r, beta), out=mask)
    return mask


def _box_mask(box: np.ndarray, shape: tuple[int, int], blur: str, r: float, beta: float) -> np.ndarray:
    if blur == "ggauss":
        x1, y1, x2, y2 = box
        column, row = (
            _bell_curve(size, low, high, r, beta) for size, low, high in ((shape[1], x1, x2), (shape[0], y1, y2))
        )
        return (row[:, None] * column[None]).astype(np.float32)
    x1, y1, x2, y2 = clip_boxes(box, *shape)[0]
    hard = np.zeros(shape, np.float32)
    hard[y1:y2, x1:x2] = 1
    if blur == "none" or not hard.any():
        return hard
    wide, tall = (max(1, (high - low) // 2) / r for low, high in ((x1, x2), (y1, y2)))
    # beyond the image the weight is 0
    sizes = tuple(2 * int(np.ceil(CUT * sigma)) + 1 for sigma in (wide, tall))
    soft = cv2.GaussianBlur(hard, sizes, wide, sigmaY=tall, borderType=cv2.BORDER_CONSTANT)
    return soft / soft.max()


def _bell_curve(size: int, low: float, high: float, r: float, beta: float) -> np.ndarray:
    deviation = max(1, (high - low) // 2) / r
    distance = np.abs(np.arange(size) + 0.5 - (low + high) / 2)
    bell = np.exp(-((distance / (np.sqrt(2) * deviation)) ** beta))
    return bell / bell.max()
