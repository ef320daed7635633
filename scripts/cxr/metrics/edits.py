"""Measures of an edit of a chest X-ray, computed from the images before and after the edit, without a model.

Images are (H, W) in grey levels 0..255, boxes half-open (x1, y1, x2, y2) in frame pixels.
"""

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box, clip_boxes

SIDE = 2  # width of the strip along a box's sides, where an edit must not end in a straight edge, px
NEAR = 4  # distance from the lungs' border within which an edit may end sharply, because the lung ends there, px


def mask_from_boxes(boxes: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return a mask, bool (H, W), of the pixels whose centre is in any of the boxes (N, 4)."""
    mask = np.zeros(shape, bool)
    for x1, y1, x2, y2 in clip_boxes(boxes, *shape):
        mask[y1:y2, x1:x2] = True
    return mask


def difference_image(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return the change of each pixel in grey levels, float64 (H, W), positive where the edit brightened it."""
    return np.asarray(after, np.float64) - np.asarray(before, np.float64)


def mean_change_inside(difference: np.ndarray, inside: np.ndarray) -> float:
    """Return the mean absolute change in the mask ``inside``, bool (H, W), in grey levels; 0 for an empty mask."""
    return float(np.abs(difference[inside]).mean()) if inside.any() else 0.0


def largest_change_outside(difference: np.ndarray, inside: np.ndarray) -> float:
    """Return the largest absolute change outside the mask ``inside``, bool (H, W), in grey levels."""
    return float(np.abs(difference[~inside]).max(initial=0.0))


def leaked_fraction(difference: np.ndarray, inside: np.ndarray) -> float:
    """Return the fraction of the summed squared change that lies outside the mask ``inside``; 0 if nothing changed."""
    squared = difference**2
    total = float(squared.sum())
    return float(squared[~inside].sum()) / total if total > 0 else 0.0


def visible_pixels(difference: np.ndarray, levels: float) -> np.ndarray:
    """Return the pixels that changed by ``levels`` grey levels or more, bool (H, W)."""
    return np.abs(difference) >= levels


def tight_box(mask: np.ndarray) -> np.ndarray | None:
    """Return the tight box of a mask, float64 (4,), or None for an empty mask."""
    return np.array(bounding_box(mask), np.float64) if mask.any() else None


def tight_box_inside(box: np.ndarray, region: np.ndarray) -> np.ndarray | None:
    """Return the tight box of the part of the mask ``region`` that lies in a box (4,), or None if there is none."""
    return tight_box(mask_from_boxes(box, region.shape) & region)


def edge_ratio(difference: np.ndarray, box: np.ndarray, lungs: np.ndarray) -> float:
    """Return the mean absolute change along a box's sides divided by the mean in the box, both inside the lungs.

    The sides are strips of :data:`SIDE` pixels. Pixels near the lungs' border are ignored, because an edit may end
    where the lung ends. A value near 1 means that the edit stops abruptly at the sides. NaN if it is undefined.
    """
    x1, y1, x2, y2 = clip_boxes(box, *lungs.shape)[0]
    inside = mask_from_boxes(box, lungs.shape)
    strips = inside.copy()
    strips[y1 + SIDE : y2 - SIDE, x1 + SIDE : x2 - SIDE] = False
    deep = cv2.distanceTransform(lungs.astype(np.uint8), cv2.DIST_L2, 5) > NEAR
    size, strips, inside = np.abs(difference), strips & deep, inside & lungs
    mean_change = float(size[inside].mean()) if inside.any() else 0.0
    return float(size[strips].mean()) / mean_change if strips.any() and mean_change > 0 else float("nan")


def cardiothoracic_ratio(heart: np.ndarray, right_lung: np.ndarray, left_lung: np.ndarray) -> float:
    """Return the heart's width divided by the distance between the outer edges of the lungs.

    Masks are bool (H, W); sides are the patient's (the right lung is on the image's left). NaN for an empty mask.
    """
    if not (heart.any() and right_lung.any() and left_lung.any()):
        return float("nan")
    x1, _, x2, _ = bounding_box(heart)
    return (x2 - x1) / (bounding_box(left_lung)[2] - bounding_box(right_lung)[0])
