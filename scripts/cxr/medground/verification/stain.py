"""The plane of a picture in which the judge measures: its luminance, or the density of the stain of nuclei."""

from collections.abc import Sequence

import cv2
import numpy as np

NUCLEI = "nuclei"
STAINS = np.array([[0.650, 0.704, 0.286], [0.072, 0.990, 0.105], [0.268, 0.570, 0.776]])
"""Optical densities (red, green, blue) of hematoxylin, eosin and DAB (Ruifrok and Johnston 2001)."""
DENSEST = 99.9
"""Percentile of the density that becomes 0, as dark as a nucleus is in the picture."""


def measured_plane(picture: np.ndarray, domain: str, stain: str, extent: Sequence[int]) -> np.ndarray:
    """Return a plane uint8 (H, W) of a picture uint8 (H, W, 3).

    ``stain``: hematoxylin, of coloured pictures of nuclei, whose density is drawn dark; none: always luminance.
    ``extent``: the part (x1, y1, x2, y2; px) that is no padding.
    """
    grey = cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY)
    coloured = bool((picture != picture[..., :1]).any())
    if stain == "none" or domain != NUCLEI or not coloured:
        return grey
    density = -np.log((picture.reshape(-1, 3).astype(np.float64) + 1) / 256)
    unmixed = np.linalg.inv(STAINS / np.linalg.norm(STAINS, axis=1, keepdims=True))
    hematoxylin = (density @ unmixed[:, 0]).reshape(grey.shape)
    x1, y1, x2, y2 = extent
    most = np.percentile(hematoxylin[y1:y2, x1:x2], DENSEST)
    if most <= 0:
        return grey
    return np.uint8(np.rint(255 - 255 * np.clip(hematoxylin / most, 0, 1)))
