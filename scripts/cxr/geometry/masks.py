"""Masks: 8-connected components, bounding boxes of components, and resizing."""

import cv2
import numpy as np


def largest_component(mask: np.ndarray) -> np.ndarray:
    """Return the largest component of a mask (H, W) with its holes filled, bool (H, W); all False for an empty mask."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    if count < 2:
        return np.zeros(mask.shape, bool)
    component = (labels == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))).astype(np.uint8)
    outlines, _ = cv2.findContours(component, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(component, outlines, -1, 1, cv2.FILLED) > 0


def component_boxes(mask: np.ndarray, smallest: int = 1) -> np.ndarray:
    """Return the bounding boxes of a mask's components, float (N, 4: x1, y1, x2, y2), largest component first.

    Components of fewer than ``smallest`` pixels are skipped, except for the largest component.
    """
    number, _, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    areas = stats[1:, cv2.CC_STAT_AREA]
    order = np.argsort(-areas, kind="stable")
    components = [part for place, part in enumerate(order) if areas[part] >= smallest or not place]
    boxes = stats[1:][components, :4].astype(np.float64) if number > 1 else np.zeros((0, 4))
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)


def resize_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """Resize a mask (H, W) to bool (size, size). Row i is row floor(i * H / size) of the mask, and likewise columns."""
    if mask.shape == (size, size):
        return mask.astype(bool)
    return cv2.resize(mask.astype(np.uint8), (size, size), interpolation=cv2.INTER_NEAREST).astype(bool)
