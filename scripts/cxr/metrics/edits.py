"""Measures of an edit of a chest X-ray, from the picture before and after it; no model is needed.

Pictures are (H, W) in grey levels 0..255, boxes (x1, y1, x2, y2) in frame pixels, half-open.
"""

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box, clip_boxes

SIDE = 2
"""Width of the strip inside a side of a box in which an edit must not end in a straight edge, px."""
NEAR = 4
"""Distance from the lungs' border within which an edit may end sharply, because the lung does, px."""


def box_mask(boxes: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return the pixels whose centres lie in any of the boxes (N, 4), bool (H, W)."""
    mask = np.zeros(shape, bool)
    for x1, y1, x2, y2 in clip_boxes(boxes, *shape):
        mask[y1:y2, x1:x2] = True
    return mask


def change(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the change of each pixel, float64 (H, W), grey levels; positive where the edit is brighter."""
    return np.asarray(after, np.float64) - np.asarray(before, np.float64)


def mean_inside(difference: np.ndarray, inside: np.ndarray) -> float:
    """Return the mean size of the change in the pixels ``inside`` bool (H, W), grey levels; 0 of no pixel."""
    return float(np.abs(difference[inside]).mean()) if inside.any() else 0.0


def largest_outside(difference: np.ndarray, inside: np.ndarray) -> float:
    """Return the largest change outside the pixels ``inside`` bool (H, W), grey levels."""
    return float(np.abs(difference[~inside]).max(initial=0.0))


def leak(difference: np.ndarray, inside: np.ndarray) -> float:
    """Return the share of the squared change that lies outside the pixels ``inside``; 0 where nothing changed."""
    squared = difference**2
    total = float(squared.sum())
    return float(squared[~inside].sum()) / total if total > 0 else 0.0


def visible(difference: np.ndarray, levels: float) -> np.ndarray:
    """Return the pixels that changed by ``levels`` grey levels or more, bool (H, W)."""
    return np.abs(difference) >= levels


def box_of(mask: np.ndarray) -> np.ndarray | None:
    """Return the tight box of a mask, float64 (4,), or None of an empty one."""
    return np.array(bounding_box(mask), np.float64) if mask.any() else None


def box_in(box: np.ndarray, region: np.ndarray) -> np.ndarray | None:
    """Return the tight box of the part of ``region`` bool (H, W) that lies in a box (4,), or None where none does."""
    return box_of(box_mask(box, region.shape) & region)


def edge_ratio(difference: np.ndarray, box: np.ndarray, lungs: np.ndarray) -> float:
    """Return the mean change along the sides of a box over the mean change in the box, both inside the lungs.

    The sides are strips of :data:`SIDE` pixels, without the pixels near the lungs' border: there an edit may end
    because the lung does. Near 1: the edit is a rectangle. NaN where no such pixel is or nothing changed.
    """
    x1, y1, x2, y2 = clip_boxes(box, *lungs.shape)[0]
    inside = box_mask(box, lungs.shape)
    strips = inside.copy()
    strips[y1 + SIDE : y2 - SIDE, x1 + SIDE : x2 - SIDE] = False
    deep = cv2.distanceTransform(lungs.astype(np.uint8), cv2.DIST_L2, 5) > NEAR
    size, strips, inside = np.abs(difference), strips & deep, inside & lungs
    mean_change = float(size[inside].mean()) if inside.any() else 0.0
    return float(size[strips].mean()) / mean_change if strips.any() and mean_change > 0 else float("nan")


def heart_share(heart: np.ndarray, right_lung: np.ndarray, left_lung: np.ndarray) -> float:
    """Return the cardiothoracic ratio: the heart's width over that from outer lung edge to outer lung edge.

    Masks bool (H, W), sides are the patient's (the right lung is on the picture's left); NaN where one is empty.
    """
    if not (heart.any() and right_lung.any() and left_lung.any()):
        return float("nan")
    x1, _, x2, _ = bounding_box(heart)
    return (x2 - x1) / (bounding_box(left_lung)[2] - bounding_box(right_lung)[0])


def detail_kept(before: np.ndarray, difference: np.ndarray, smooth: np.ndarray, inside: np.ndarray, sigma: float):
    """Return (slope, correlation) of the detail after an edit against the detail before it, in ``inside``.

    ``difference``: what the edit did to the picture; ``smooth``: what the same edit does to the picture blurred by
    ``sigma`` px. What both have in common is the lesion's own; the rest tells how much of the film's detail is left:
    slope 1 = all of it, 0 = none.
    """
    before = np.asarray(before, np.float64)
    detail = (before - cv2.GaussianBlur(before, (0, 0), sigma))[inside]
    remaining_detail = detail + (difference - smooth)[inside]
    detail, remaining_detail = detail - detail.mean(), remaining_detail - remaining_detail.mean()
    power = float((detail**2).sum())
    if power == 0 or not remaining_detail.any():
        return float("nan"), float("nan")
    product = float((detail * remaining_detail).sum())
    return product / power, product / np.sqrt(power * float((remaining_detail**2).sum()))
