"""The parts of Algorithm 1 (ils.md section 5): one pass over pixels, then arithmetic over all boxes at once.

Maps and masks are uint8 (H, W) of 0 and 1; boxes are half-open pixel boxes int64 (N, 4: x1, y1, x2, y2).
"""

from typing import NamedTuple

import cv2
import numpy as np

from ils.core.labels import BOX_CONDITIONS
from ils.masks.thresholds import Taus, at_least

VERDICTS = {name: 1 << bit for bit, name in enumerate(BOX_CONDITIONS)}
"""Bits of a box's verdict for one finding: the conditions that failed. 0 is a productive box."""

_CROSS = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))


class Components(NamedTuple):
    """8-connected components: ``labels`` int32 (H, W), 0 = background; the rest is indexed by label."""

    labels: np.ndarray
    areas: np.ndarray
    boxes: np.ndarray


def opened(binary: np.ndarray) -> np.ndarray:
    """Open once with a 3x3 cross. What lies outside the map is background, so it erodes from the border too."""
    eroded = cv2.erode(binary, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)
    return cv2.dilate(eroded, _CROSS, borderType=cv2.BORDER_CONSTANT, borderValue=0)


def components(binary: np.ndarray) -> Components:
    """Return the 8-connected components, their areas (px) and their half-open bounding boxes."""
    _, labels, stats, _ = cv2.connectedComponentsWithStats(binary, connectivity=8, ltype=cv2.CV_32S)
    x, y, width, height, area = stats.T.astype(np.int64)
    return Components(labels, area, np.stack([x, y, x + width, y + height], axis=1))


def counts(binary: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Return how many pixels of ``binary`` each box holds, int64 (N,), by one summed-area table."""
    if not len(boxes):
        return np.zeros(0, np.int64)
    table = cv2.integral(binary)
    x1, y1, x2, y2 = boxes.T
    return (table[y2, x2] - table[y1, x2] - table[y2, x1] + table[y1, x1]).astype(np.int64)


def areas(boxes: np.ndarray) -> np.ndarray:
    """Return the pixels of each box, int64 (N,)."""
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def touched(labels: np.ndarray, box: np.ndarray) -> list[int]:
    """Return the components that share a pixel with a box, by label."""
    x1, y1, x2, y2 = box
    held = np.bincount(labels[y1:y2, x1:x2].ravel(), minlength=1)
    held[0] = 0
    return np.flatnonzero(held).tolist()


class Measures(NamedTuple):
    """What the four conditions compare, for N boxes: pixel counts int64 (N,) and areas of masks (int)."""

    area: np.ndarray
    confidence: np.ndarray
    anatomy: np.ndarray
    anatomy_area: int
    signal: np.ndarray
    lungs: tuple[np.ndarray, np.ndarray]
    lung_areas: tuple[int, int]


def failed(measures: Measures, taus: Taus) -> np.ndarray:
    """Return the conditions c1..c4 that each box fails, uint8 (N,) of :data:`VERDICTS` bits; 0 = all hold.

    c1 = IoU(B, M) >= anatomy, c2 = confidence >= conf, c3 = |B and A| / |B| >= signal, c4 = IoU(B, either lung) >=
    size. The IoU with an empty mask is 0. A box without area is skipped, whatever its conditions.
    """

    def overlaps(shared: np.ndarray, mask_area: int, share) -> np.ndarray:
        union = np.where(mask_area > 0, measures.area + mask_area - shared, 0)
        return at_least(shared, union, share)

    holds = {
        "anatomy": overlaps(measures.anatomy, measures.anatomy_area, taus.anatomy),
        "conf": measures.confidence >= taus.conf,
        "signal": at_least(measures.signal, measures.area, taus.signal),
        "size": np.logical_or(
            *(overlaps(lung, size, taus.size) for lung, size in zip(measures.lungs, measures.lung_areas, strict=True))
        ),
        "zero_area": measures.area > 0,
    }
    bits = np.zeros(len(measures.area), np.uint8)
    for name, held in holds.items():
        bits |= np.where(held, 0, VERDICTS[name]).astype(np.uint8)
    return bits
