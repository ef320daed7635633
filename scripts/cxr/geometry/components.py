"""The 8-connected components of a mask: the largest one, and a box around each.

Algorithm 1 has its own components (cxr.ils.masks.algorithm): it needs only a few of many, one at a time.
"""

import cv2
import numpy as np


def largest(mask: np.ndarray) -> np.ndarray:
    """Return the largest component of a mask (H, W) with its holes filled, bool (H, W); empty if the mask is."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    if count < 2:
        return np.zeros(mask.shape, bool)
    component = (labels == 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))).astype(np.uint8)
    outlines, _ = cv2.findContours(component, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return cv2.drawContours(component, outlines, -1, 1, cv2.FILLED) > 0


def boxes_around(mask: np.ndarray, smallest: int = 1) -> np.ndarray:
    """Return boxes around the components of a mask (H, W), float (N, 4: x1, y1, x2, y2), largest component first.

    Components of fewer than ``smallest`` pixels get no box, unless all are that small.
    """
    number, _, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    areas = stats[1:, cv2.CC_STAT_AREA]
    order = np.argsort(-areas, kind="stable")
    components = [part for place, part in enumerate(order) if areas[part] >= smallest or not place]
    boxes = stats[1:][components, :4].astype(np.float64) if number > 1 else np.zeros((0, 4))
    return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)
