"""The embedded counterfactual engine: a small net that estimates and subtracts the brightness of lesions.

The net receives only the lungs, stretched to a square. It predicts how much brighter each pixel is than in a healthy
chest, in units of the image's own range of grey levels; this excess is subtracted. It was trained on healthy X-rays,
real and synthetic, with painted lesions (resources/anomaly).
"""

from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LUNGS
from cxr.geometry.affine import to_frame, to_original
from cxr.nets import onnx

RESOURCE_FILES = ("anomaly/lite.onnx",)
SIDE = 128
"""Pixels of the net's square input."""
MARGIN = 0.09
"""Margin of the window around the lungs, in their widths and heights."""
TRIM = 0.01
"""Fraction of the lungs' pixels that may lie outside on each side: stray mask pixels must not move the window."""
SIGMA = 1.2
"""Blur of the input in its pixels: the net was trained on painted lesions and must not detect brush strokes."""
PERCENTILES = (1.0, 99.0)
"""Percentiles of the window's grey levels that span the net's unit."""


class View(NamedTuple):
    """The lungs of one image as the net receives them."""

    image: np.ndarray
    """float32 (SIDE, SIDE), 0..1 between the percentiles."""
    lungs: np.ndarray
    """float32 (2, SIDE, SIDE), right and left lung."""
    span: float
    """Grey levels between the percentiles."""


def _ends(counts: np.ndarray) -> tuple[int, int]:
    total = np.cumsum(counts) / counts.sum()
    return int(np.searchsorted(total, TRIM)), int(np.searchsorted(total, 1 - TRIM)) + 1


def window(lungs: np.ndarray, side: int = SIDE, margin: float = MARGIN) -> np.ndarray:
    """Return the affine (2, 3) from a square of ``side`` px to the frame around the lungs, bool (H, W), not empty."""
    (x1, x2), (y1, y2) = _ends(lungs.sum(axis=0)), _ends(lungs.sum(axis=1))
    width, height = (x2 - x1) * (1 + 2 * margin), (y2 - y1) * (1 + 2 * margin)
    return np.array([[width / side, 0, x1 - margin * (x2 - x1)], [0, height / side, y1 - margin * (y2 - y1)]])


def cut(image: np.ndarray, lungs: np.ndarray, affine: np.ndarray, side: int = SIDE) -> tuple[np.ndarray, np.ndarray]:
    """Resample a frame uint8 (H, W) and its lungs bool (2, H, W) into the window: uint8 (side, side), bool (2, ...)."""
    masks = [to_frame(lung.astype(np.uint8) * 255, affine, side) > 127 for lung in lungs]
    return to_frame(image, affine, side), np.stack(masks)


def view(picture: np.ndarray, lungs: np.ndarray) -> View:
    """Scale a cropped image (side, side), in grey levels, to the net's input."""
    picture = np.asarray(picture, np.float32)
    low, high = np.percentile(picture, PERCENTILES)
    span = max(float(high - low), 2.5)
    scaled = np.clip((cv2.GaussianBlur(picture, (0, 0), SIGMA) - np.float32(low)) / np.float32(span), -0.1, 1.1)
    return View(scaled, lungs.astype(np.float32), span)


class LiteEditor:
    """Subtracts the excess brightness that the net finds in the lungs."""

    def __init__(self):
        self.path = RESOURCES / RESOURCE_FILES[0]
        onnx.session(self.path)

    def excess(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> np.ndarray:
        """Return float32 (H, W) >= 0: grey levels by which each pixel is brighter than in health."""
        lungs = np.stack([organs[label] for label in LUNGS])
        if not lungs.any():
            return np.zeros(image.shape, np.float32)
        affine = window(lungs.any(axis=0))
        seen = view(*cut(image, lungs, affine))
        found = onnx.run(self.path, image=seen.image[None, None], lungs=seen.lungs[None])[0][0, 0]
        coarse = affine * np.array([SIDE / found.shape[1], SIDE / found.shape[0], 1.0])
        return to_original(found * np.float32(seen.span), coarse, image.shape, nearest=False)

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the image without lesions, float32 (512, 512), of a uint8 frame and {label: bool (512, 512)}."""
        return image.astype(np.float32) - self.excess(image, organs)


def load(options: object, setup: object = None) -> LiteEditor:
    """Load the engine; it has no settings of its own."""
    return LiteEditor()
