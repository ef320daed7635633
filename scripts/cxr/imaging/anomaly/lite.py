"""The embedded counterfactual engine: a small net that estimates and removes the brightness of lesions.

The net (resources/anomaly) receives the lungs, stretched to a square. It predicts each pixel's probability of a lesion,
and how much brighter the lesion makes it in units of the image's range; :mod:`cxr.imaging.anomaly.restore` removes it.
"""

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LUNGS
from cxr.geometry.affine import to_frame, to_original
from cxr.imaging.anomaly.engine import edit_region
from cxr.imaging.anomaly.restore import remove_lesions
from cxr.nets import onnx

RESOURCE_FILES = ("anomaly/lite.onnx",)
SIDE = 128  # pixels of the net's square input
MARGIN = 0.09  # margin of the window around the lungs, in their widths and heights
TRIM = 0.01  # fraction of the lungs' pixels that may lie outside on each side: stray pixels must not move the window
SIGMA = 1.2  # blur of the input in its pixels: the net was trained on painted lesions and must not detect brush strokes
PERCENTILES = (1.0, 99.0)  # percentiles of the grey levels in the lungs' hull that span the net's unit
SUREST = 0.06  # fraction of the lungs, the brightest excess, whose mean decides how far an image is damped
QUIET, LOUD = 45.0, 55.0  # mean excess there, grey levels: up to QUIET an image looks healthy, from LOUD on ill
DAMPED = 0.6  # factor of the excess of a healthy-looking image: it stays below the paper's threshold, in equal order


class LungView(NamedTuple):
    """The lungs of one image as the net receives them."""

    image: np.ndarray  # float32 (SIDE, SIDE), 0..1 between the percentiles
    lungs: np.ndarray  # float32 (2, SIDE, SIDE), right and left lung
    span: float  # grey levels between the percentiles


def _trimmed_range(counts: np.ndarray) -> tuple[int, int]:
    total = np.cumsum(counts) / counts.sum()
    return int(np.searchsorted(total, TRIM)), int(np.searchsorted(total, 1 - TRIM)) + 1


def fit_window(lungs: np.ndarray, side: int = SIDE, margin: float = MARGIN) -> np.ndarray:
    """Return the affine (2, 3) from a square of ``side`` px to the frame around the lungs, bool (H, W), not empty."""
    (x1, x2), (y1, y2) = _trimmed_range(lungs.sum(axis=0)), _trimmed_range(lungs.sum(axis=1))
    width, height = (x2 - x1) * (1 + 2 * margin), (y2 - y1) * (1 + 2 * margin)
    return np.array([[width / side, 0, x1 - margin * (x2 - x1)], [0, height / side, y1 - margin * (y2 - y1)]])


def crop_to_window(
    image: np.ndarray, lungs: np.ndarray, affine: np.ndarray, side: int = SIDE
) -> tuple[np.ndarray, np.ndarray]:
    """Resample a frame uint8 (H, W) and its lungs bool (2, H, W) into the window: uint8 (side, side), bool (2, ...)."""
    masks = [to_frame(lung.astype(np.uint8) * 255, affine, side) > 127 for lung in lungs]
    return to_frame(image, affine, side), np.stack(masks)


def lung_hull(lungs: np.ndarray) -> np.ndarray:
    """Return bool (H, W): the convex hull of the lungs, bool (2, H, W); all true if both are empty."""
    points = cv2.findNonZero(lungs.any(axis=0).astype(np.uint8))
    if points is None:
        return np.ones(lungs.shape[1:], bool)
    filled = np.zeros(lungs.shape[1:], np.uint8)
    cv2.fillConvexPoly(filled, cv2.convexHull(points), 1)
    return filled > 0


def make_lung_view(image: np.ndarray, lungs: np.ndarray) -> LungView:
    """Scale a cropped image (side, side), in grey levels, to the net's input.

    ``lungs`` bool (2, side, side). The grey range is that of their hull, so arms, collars and borders do not change it.
    """
    image = np.asarray(image, np.float32)
    low, high = np.percentile(image[lung_hull(lungs)], PERCENTILES)
    span = max(float(high - low), 2.5)
    scaled = np.clip((cv2.GaussianBlur(image, (0, 0), SIGMA) - np.float32(low)) / np.float32(span), -0.1, 1.1)
    return LungView(scaled, lungs.astype(np.float32), span)


def damping_factor(excess: np.ndarray, lungs: np.ndarray) -> float:
    """Return the factor, ``DAMPED`` to 1, for the excess of an image.

    ``excess`` float32 (h, w) in grey levels, ``lungs`` float32 (2, H, W), at least as large. A lesion is seldom faint
    everywhere, but a false detection in healthy lungs is.
    """
    inside = cv2.resize(lungs.max(axis=0), excess.shape[::-1], interpolation=cv2.INTER_AREA) > 0.5
    values = np.sort(excess[inside])
    if not values.size:
        return DAMPED
    most = float(values[-max(1, int(SUREST * values.size)) :].mean())
    return DAMPED + (1 - DAMPED) * min(max((most - QUIET) / (LOUD - QUIET), 0.0), 1.0)


class LiteEditor:
    """Removes the excess brightness that the net detects in the lungs."""

    def __init__(self, path: str | Path = RESOURCES / RESOURCE_FILES[0]):
        self.path = Path(path)
        onnx.open_session(self.path)

    def predict_lesions(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return two float32 (H, W): each pixel's probability of a lesion, and the grey levels that it adds, >= 0."""
        lungs = np.stack([organs[label] for label in LUNGS])
        if not lungs.any():
            return np.zeros(image.shape, np.float32), np.zeros(image.shape, np.float32)
        affine = fit_window(lungs.any(axis=0))
        lung_view = make_lung_view(*crop_to_window(image, lungs, affine))
        suspicion, excess = onnx.run_model(self.path, image=lung_view.image[None, None], lungs=lung_view.lungs[None])
        coarse = affine * np.array([SIDE / suspicion.shape[3], SIDE / suspicion.shape[2], 1.0])
        levels = excess[0, 0] * np.float32(lung_view.span)
        maps = suspicion[0, 0], levels * np.float32(damping_factor(levels, lung_view.lungs))
        return tuple(to_original(pixel_map, coarse, image.shape, nearest=False) for pixel_map in maps)

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the image without lesions, float32 (512, 512), of a uint8 frame and {label: bool (512, 512)}."""
        lungs = np.logical_or.reduce([organs[label] for label in LUNGS])
        if not lungs.any():
            return image.astype(np.float32)
        return remove_lesions(image, edit_region(organs), lungs, *self.predict_lesions(image, organs))


def load(options: object, setup: object = None) -> LiteEditor:
    """Load the engine; it has no settings of its own."""
    return LiteEditor()
