"""Removing lesions from a frame with a small net, which estimates how much lesions brighten each pixel.

The net (resources/anomaly) receives the lungs, stretched to a square. For each pixel it predicts the probability of a
lesion, and the brightness that the lesion adds (its excess), as a fraction of the image's range.

The frame is split into a blurred base and detail, such as ribs and vessels. The excess is subtracted from the base. A
lesion also weakens the detail, because absorption is multiplicative. So the detail is multiplied by the factor by which
the base's distance to white grows. At most ``ROOM`` grey levels are subtracted, except where the base exceeds its
median in the healthy parts of the lungs by more than ``ROOM``. There it may fall to this median.
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
MARGIN = 0.09  # margin of the window around the lungs, as a fraction of their width and height
TRIM = 0.01  # fraction of the lung pixels ignored on each side of the window, so that stray pixels do not move it
SIGMA = 1.2  # SD of the input's blur, input pixels; it hides the brush strokes of painted lesions in the training
PERCENTILES = (1.0, 99.0)  # percentiles of the grey levels in the lungs' hull that become 0 and 1 in the net's input
SUREST = 0.06  # fraction of the lung pixels with the largest excess; the mean of these pixels decides on damping
QUIET, LOUD = 45.0, 55.0  # an image with this mean below QUIET looks healthy, above LOUD diseased; grey levels
DAMPED = 0.6  # factor for the excess of an image that looks healthy; keeps the excess below the paper's threshold
BASE_SIGMA = 8.0  # SD of the blur that gives the base, pixels: about a rib's width
FADE = 8.0  # distance from the region's outline over which the edit fades out, pixels
UNSUSPICIOUS = 0.3  # a pixel counts as healthy if its probability of a lesion is below this value
MIN_HEALTHY_FRACTION = 0.1  # minimum fraction of the lungs that counts as healthy, however suspicious all pixels are
ROOM = 100.0  # grey levels that may be subtracted anywhere, even where a lesion is not brighter than healthy parts
BLACK = 4.0  # minimum grey level after an edit; a lung contains tissue, only the air around the patient is black
WHITE = 255.0
MIN_WHITE_DISTANCE = 10.0  # lower limit of the distance to white where it is a divisor, grey levels
MAX_DETAIL_GAIN = 3.0  # maximum factor by which detail is multiplied


class LungView(NamedTuple):
    """The net's input for one image, and the grey range from which it was scaled."""

    image: np.ndarray  # float32 (SIDE, SIDE), 0 and 1 at the percentiles
    lungs: np.ndarray  # float32 (2, SIDE, SIDE), right and left lung
    span: float  # grey levels between the percentiles


def _trimmed_range(counts: np.ndarray) -> tuple[int, int]:
    total = np.cumsum(counts) / counts.sum()
    return int(np.searchsorted(total, TRIM)), int(np.searchsorted(total, 1 - TRIM)) + 1


def fit_window(lungs: np.ndarray, side: int = SIDE, margin: float = MARGIN) -> np.ndarray:
    """Return the affine (2, 3) from a square window around non-empty ``lungs``, bool (H, W), to the frame.

    ``side``: side of the window, pixels; ``margin``: space around the lungs, as a fraction of their width and height.
    """
    (x1, x2), (y1, y2) = _trimmed_range(lungs.sum(axis=0)), _trimmed_range(lungs.sum(axis=1))
    width, height = (x2 - x1) * (1 + 2 * margin), (y2 - y1) * (1 + 2 * margin)
    return np.array([[width / side, 0, x1 - margin * (x2 - x1)], [0, height / side, y1 - margin * (y2 - y1)]])


def crop_to_window(
    image: np.ndarray, lungs: np.ndarray, affine: np.ndarray, side: int = SIDE
) -> tuple[np.ndarray, np.ndarray]:
    """Resample a frame, uint8 (H, W), and its lung masks, bool (2, H, W), to the window that ``affine`` describes."""
    masks = [to_frame(lung.astype(np.uint8) * 255, affine, side) > 127 for lung in lungs]
    return to_frame(image, affine, side), np.stack(masks)


def lung_hull(lungs: np.ndarray) -> np.ndarray:
    """Return the convex hull of ``lungs``, bool (2, H, W), as bool (H, W). It is all True if both lungs are empty."""
    points = cv2.findNonZero(lungs.any(axis=0).astype(np.uint8))
    if points is None:
        return np.ones(lungs.shape[1:], bool)
    filled = np.zeros(lungs.shape[1:], np.uint8)
    cv2.fillConvexPoly(filled, cv2.convexHull(points), 1)
    return filled > 0


def make_lung_view(image: np.ndarray, lungs: np.ndarray) -> LungView:
    """Scale a cropped image (side, side), in grey levels, to the net's input.

    ``lungs``: bool (2, side, side). Their convex hull, which excludes arms, collars and borders, gives the grey range.
    """
    image = np.asarray(image, np.float32)
    low, high = np.percentile(image[lung_hull(lungs)], PERCENTILES)
    span = max(float(high - low), 2.5)
    scaled = np.clip((cv2.GaussianBlur(image, (0, 0), SIGMA) - np.float32(low)) / np.float32(span), -0.1, 1.1)
    return LungView(scaled, lungs.astype(np.float32), span)


def damping_factor(excess: np.ndarray, lungs: np.ndarray) -> float:
    """Return the factor, ``DAMPED`` to 1, by which to multiply the brightness ``excess`` that the net predicts.

    The factor is ``DAMPED`` if the largest excess in the lungs is small, because it is then mostly a false detection.
    ``excess``: float32 (h, w) in grey levels; ``lungs``: masks of the same area in finer pixels, float32 (2, H, W).
    """
    inside = cv2.resize(lungs.max(axis=0), excess.shape[::-1], interpolation=cv2.INTER_AREA) > 0.5
    values = np.sort(excess[inside])
    if not values.size:
        return DAMPED
    most = float(values[-max(1, int(SUREST * values.size)) :].mean())
    return DAMPED + (1 - DAMPED) * min(max((most - QUIET) / (LOUD - QUIET), 0.0), 1.0)


def low_pass(image: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Return an image, float32 (H, W), blurred over the pixels of ``region``, bool (H, W), only; 0 far from the region.

    ``image``: float32 (H, W) in grey levels. For speed, an image of half the size is blurred and then enlarged.
    """
    image_and_weight = cv2.merge([image * region, region.astype(np.float32)])
    half = -(-image.shape[1] // 2), -(-image.shape[0] // 2)
    small = cv2.resize(image_and_weight, half, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), BASE_SIGMA / 2)
    mean = small[..., 0] / np.maximum(small[..., 1], 1e-3)
    return cv2.resize(mean, image.shape[::-1], interpolation=cv2.INTER_LINEAR)


def fade_weights(region: np.ndarray) -> np.ndarray:
    """Return weights, float32 (H, W): 0 outside ``region``, bool (H, W), rising to 1 at ``FADE`` pixels inside it."""
    depth = cv2.distanceTransform(np.pad(region, 1).astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    share = np.clip((depth - 0.5) / FADE, 0, 1)
    return share * share * (3 - 2 * share)


def healthy_parts(lungs: np.ndarray, suspicion: np.ndarray) -> np.ndarray:
    """Return the lung pixels that look healthy, bool (H, W). ``suspicion``: probability of a lesion, float32 (H, W)."""
    healthy_lungs = lungs & (suspicion < UNSUSPICIOUS)
    if np.count_nonzero(healthy_lungs) >= MIN_HEALTHY_FRACTION * np.count_nonzero(lungs):
        return healthy_lungs
    return lungs & (suspicion <= np.quantile(suspicion[lungs], MIN_HEALTHY_FRACTION))


def limit_excess(excess: np.ndarray, room: np.ndarray) -> np.ndarray:
    """Limit ``excess`` >= 0 smoothly to less than ``room`` > 0. Small values hardly change, and their order is kept."""
    return excess * room / (excess + room)


def remove_lesions(
    image: np.ndarray, region: np.ndarray, lungs: np.ndarray, suspicion: np.ndarray, excess: np.ndarray
) -> np.ndarray:
    """Remove lesions from an image; return float32 (H, W) in grey levels. All arguments are (H, W).

    ``image``: uint8; ``region``: bool, where edits are allowed; ``lungs``: bool, a non-empty part of the region;
    ``suspicion``: float32, probability of a lesion; ``excess``: float32 >= 0, brightness that lesions add, grey levels.
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
    """An editor that removes the brightness that lesions add to the lungs, as estimated by the net."""

    def __init__(self, path: str | Path = RESOURCES / RESOURCE_FILES[0]):
        self.path = Path(path)
        onnx.open_session(self.path)

    def predict_lesions(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return each pixel's probability of a lesion and the grey levels that the lesion adds, both float32 (H, W)."""
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
        """Remove the lesions from a frame, uint8 (512, 512), inside its organ masks; return float32, grey levels."""
        lungs = np.logical_or.reduce([organs[label] for label in LUNGS])
        if not lungs.any():
            return image.astype(np.float32)
        return remove_lesions(image, edit_region(organs), lungs, *self.predict_lesions(image, organs))


def load(options: object, setup: object = None) -> LiteEditor:
    """Load the engine, which has no settings."""
    return LiteEditor()
