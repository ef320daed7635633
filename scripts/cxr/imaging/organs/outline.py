"""Filling the three outlines of the CheXmask models' 120 landmarks to masks, in the same way as the database.

Source: its data dictionary and code (ngaggion/CheXmask-Database). Sides are the patient's.
"""

import cv2
import numpy as np

OUTLINES = {"right lung": slice(0, 44), "left lung": slice(44, 94), "heart": slice(94, 120)}
"""The landmarks of each organ, in the order of ``labels.ORGAN_LABELS``: a closed ring each."""
LANDMARKS = 120
_FAR = 1 << 15
"""Largest coordinate that OpenCV can draw, px."""


def fill_outlines(points: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return uint8 (3, rows, columns), 1 inside each outline of ``points`` (120, 2: x, y).

    A point is a pixel index, not a position between pixels; the outline's pixels belong to the mask. Raises ValueError
    for another number of points or for NaN.
    """
    if points.shape != (LANDMARKS, 2) or not np.isfinite(points).all():
        raise ValueError(f"{LANDMARKS} landmarks of two numbers are needed, not an array of shape {points.shape}")
    pixels = np.clip(np.round(points), -_FAR, _FAR).astype(np.int32)
    masks = np.zeros((len(OUTLINES), *shape), np.uint8)
    for mask, part in zip(masks, OUTLINES.values(), strict=True):
        cv2.drawContours(mask, [pixels[part].reshape(-1, 1, 2)], -1, 1, cv2.FILLED)
    return masks
