"""Measure the signs of a lesion that an image shows in each valid location: its boxes and its anomaly map.

A denial that only the report's silence supports also needs an image that is quiet in the place. The image never forbids
an explicit denial: another lesion may light up there.
"""

import cv2
import numpy as np

from cxr.base.vocabulary import VALID_LOCATIONS
from cxr.geometry.boxes import clip_boxes
from cxr.ils.masks import algorithm
from cxr.ils.masks.zones import Zones

SMALLEST_OVERLAP = 0.1
"""Fraction of a box's area in a location from which the box counts there (our choice)."""
ANOMALOUS_LEVEL = 25
"""Grey level of the anomaly map from which a pixel counts as anomalous (our choice)."""


def measure_signs(zones: Zones, boxes: np.ndarray, confidence: np.ndarray, anomaly: np.ndarray | None) -> list[dict]:
    """Return a row for each valid location that is visible: the best box there and the anomalous fraction.

    ``boxes`` float (N, 4: x1, y1, x2, y2) and ``confidence`` (N,): those that the boxes stage keeps; ``anomaly`` uint8
    (H, W), None for an image without a map of its own, whose fraction is null.
    """
    labels = [place for place in VALID_LOCATIONS if place in zones.visible]
    if not labels:
        return []
    masks = np.unpackbits(np.stack([zones[label] for label in labels]), axis=-1)
    height, width = masks.shape[1:]
    clipped = clip_boxes(boxes, height, width)
    corners = algorithm.index_corners(clipped, width)
    areas = np.maximum((clipped[:, 2] - clipped[:, 0]) * (clipped[:, 3] - clipped[:, 1]), 1)
    anomalous = None if anomaly is None else (anomaly >= ANOMALOUS_LEVEL).view(np.uint8)
    rows = []
    for label, mask in zip(labels, masks, strict=True):
        is_there = algorithm.count_pixels_in_boxes(mask, corners) >= SMALLEST_OVERLAP * areas
        fraction = None if anomalous is None else cv2.countNonZero(mask & anomalous) / cv2.countNonZero(mask)
        best = float(confidence[is_there].max()) if is_there.any() else 0.0
        rows.append({"location": label, "box_confidence": best, "anomalous_fraction": fraction})
    return rows
