"""Where organs may lie: in the picture, not in the frame's padding, and in the body, not in the black around it."""

import cv2
import numpy as np

from cxr.geometry.masks import largest_component

BLUR = 2.0
"""Spread of the blur before black is told from grey, pixels: noise and writing in the black do not part it."""
BLACK = 0.02
"""Black ends at this share of the way from the 0.5 % to the 99.5 % percentile of the picture's values above 0.

At 0.06 a dark apex at the edge of a film with radiologists' masks counted as black.
"""


def inside(image: np.ndarray, rectangle: tuple[float, float, float, float]) -> np.ndarray:
    """Return where the picture shows a body, bool (H, W).

    ``image`` uint8 (H, W); ``rectangle``: x1, y1, x2, y2 of the picture in the frame. Outside is what lies beyond the
    rectangle, and what is black and joined to its edge: the air around the body, the collimator, a bar.
    """
    x1, y1, x2, y2 = (round(edge) for edge in rectangle)
    picture = np.zeros(image.shape, bool)
    picture[y1:y2, x1:x2] = True
    values = image[picture & (image > 0)]
    if not values.size:
        return picture
    low, high = np.percentile(values, (0.5, 99.5))
    black = (cv2.GaussianBlur(image, (0, 0), BLUR) < low + BLACK * (high - low)) | ~picture
    padded = np.pad(black, 1, constant_values=True).astype(np.uint8)
    _, labels = cv2.connectedComponents(padded, connectivity=4)
    return picture & (labels[1:-1, 1:-1] != labels[0, 0])


def mended(masks: np.ndarray, where: np.ndarray) -> np.ndarray:
    """Return masks bool (K, H, W) without what lies outside ``where`` (H, W), one region each."""
    return np.stack([largest_component(mask & where) for mask in masks])
