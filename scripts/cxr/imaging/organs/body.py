"""Find the body in a frame: organs lie neither in the frame's padding nor in the black around the body."""

import cv2
import numpy as np

from cxr.geometry.masks import largest_component

BLUR = 2.0
"""Standard deviation in pixels of the blur before thresholding, so that noise and writing do not split the black."""
BLACK = 0.02
"""Black ends at this fraction of the range from the 0.5 % to the 99.5 % percentile of the image's values above 0.

At 0.06 a dark lung apex at the edge of an annotated image counted as black.
"""


def body_mask(image: np.ndarray, rectangle: tuple[float, float, float, float]) -> np.ndarray:
    """Return the mask of the body, bool (H, W).

    ``image`` uint8 (H, W); ``rectangle``: x1, y1, x2, y2 of the image in the frame. The mask excludes
    all beyond the rectangle and black regions connected to its edge: air around the body, the collimator, a bar.
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


def clip_masks(masks: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Return masks bool (K, H, W) inside ``region`` (H, W), reduced to their largest connected component."""
    return np.stack([largest_component(mask & region) for mask in masks])
