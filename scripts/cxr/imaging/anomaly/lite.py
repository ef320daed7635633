"""The embedded counterfactual engine: a small net that estimates and removes the brightness of lesions.

The net (resources/anomaly) receives the lungs, stretched to a square. It predicts each pixel's probability of a lesion,
and how much brighter the lesion makes it in units of the image's range.

What a lesion adds is subtracted from the low-pass base alone. Absorption is multiplicative, so the detail on it (ribs,
vessels) gets the factor by which the base's distance to white grew. Where the base is far brighter than the healthy
parts of the same lungs, it approaches their usual brightness; a fainter lesion loses at most ``ROOM`` grey levels.
"""

from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import LUNGS
from cxr.geometry.affine import to_frame, to_original
from cxr.imaging.anomaly.engine import edit_region
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
BASE_SIGMA = 8.0  # standard deviation of the low-pass blur in pixels: about a rib's width
FADE = 8.0  # pixels from the outline of the region within which the edit fades to nothing
UNSUSPICIOUS = 0.3  # probability of a lesion below which a pixel counts as healthy
MIN_HEALTHY_FRACTION = 0.1  # smallest fraction of the lungs that counts as healthy: the least suspicious pixels
ROOM = 100.0  # grey levels that may be subtracted anywhere, even where a lesion is no brighter than the healthy parts
BLACK = 4.0  # darkest grey level that an edit may make: a lung holds tissue, only the air beside the patient is black
WHITE = 255.0
MIN_WHITE_DISTANCE = 10.0  # smallest distance to white used as a divisor, grey levels
MAX_DETAIL_GAIN = 3.0  # largest factor applied to detail


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


def low_pass(image: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Return the blurred image float32 (H, W) of the pixels in ``region`` bool (H, W) alone; 0 far from it.

    ``image`` float32 (H, W) in grey levels. A quarter of the pixels is blurred, then enlarged, with the same result.
    """
    image_and_weight = cv2.merge([image * region, region.astype(np.float32)])
    half = -(-image.shape[1] // 2), -(-image.shape[0] // 2)
    small = cv2.resize(image_and_weight, half, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), BASE_SIGMA / 2)
    mean = small[..., 0] / np.maximum(small[..., 1], 1e-3)
    return cv2.resize(mean, image.shape[::-1], interpolation=cv2.INTER_LINEAR)


def fade_weights(region: np.ndarray) -> np.ndarray:
    """Return float32 (H, W): 0 outside ``region`` bool (H, W) and at its outline, 1 from ``FADE`` pixels inside."""
    depth = cv2.distanceTransform(np.pad(region, 1).astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    share = np.clip((depth - 0.5) / FADE, 0, 1)
    return share * share * (3 - 2 * share)


def healthy_parts(lungs: np.ndarray, suspicion: np.ndarray) -> np.ndarray:
    """Return the pixels of ``lungs`` bool (H, W), not empty, that look healthy; ``suspicion`` float32 (H, W): 0..1."""
    healthy_lungs = lungs & (suspicion < UNSUSPICIOUS)
    if np.count_nonzero(healthy_lungs) >= MIN_HEALTHY_FRACTION * np.count_nonzero(lungs):
        return healthy_lungs
    return lungs & (suspicion <= np.quantile(suspicion[lungs], MIN_HEALTHY_FRACTION))


def limit_excess(excess: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Return float32: nearly ``excess`` >= 0 where it is small beside ``room`` > 0, else nearly ``room``, in order."""
    return excess * room / (excess + room)


def remove_lesions(
    image: np.ndarray, region: np.ndarray, lungs: np.ndarray, suspicion: np.ndarray, excess: np.ndarray
) -> np.ndarray:
    """Return the image without lesions, float32 (H, W) in grey levels.

    All are (H, W): ``image`` uint8, ``region`` bool where an edit is allowed, ``lungs`` bool, a non-empty part of it,
    ``suspicion`` float32: the probability of a lesion, ``excess`` float32 >= 0: the grey levels to subtract.
    """
    x, y, width, height = cv2.boundingRect(region.astype(np.uint8))
    place = slice(y, y + height), slice(x, x + width)
    grey, lungs, suspicion = image[place].astype(np.float32), lungs[place], suspicion[place]
    base = low_pass(grey, region[place])
    room = np.maximum(base - np.median(base[healthy_parts(lungs, suspicion)]), ROOM)
    room = np.maximum(np.minimum(room, base - BLACK), 1e-3)
    off = limit_excess(excess[place], room) * fade_weights(region[place])
    factor = np.minimum((WHITE - base + off) / np.maximum(WHITE - base, MIN_WHITE_DISTANCE), MAX_DETAIL_GAIN)
    edited = np.maximum(base - off + factor * (grey - base), BLACK)
    result = image.astype(np.float32)
    result[place] = np.minimum(edited, grey)
    return result


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
