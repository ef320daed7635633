"""Remove a lesion from an image, given its probability and the grey levels that it adds at each pixel.

What a lesion adds is subtracted from the low-pass base alone. Absorption is multiplicative, so the detail on it (ribs,
vessels) gets the factor by which the base's distance to white grew. Where the base is far brighter than the healthy
parts of the same lungs, it approaches their usual brightness; a fainter lesion loses at most ``ROOM`` grey levels.
"""

import cv2
import numpy as np

SIGMA = 8.0  # standard deviation of the low-pass blur in pixels: about a rib's width
FADE = 8.0  # pixels from the outline of the region within which the edit fades to nothing
UNSUSPICIOUS = 0.3  # probability of a lesion below which a pixel counts as healthy
MIN_HEALTHY_FRACTION = 0.1  # smallest fraction of the lungs that counts as healthy: the least suspicious pixels
ROOM = 100.0  # grey levels that may be subtracted anywhere, even where a lesion is no brighter than the healthy parts
BLACK = 4.0  # darkest grey level that an edit may make: a lung holds tissue, only the air beside the patient is black
WHITE = 255.0
MIN_WHITE_DISTANCE = 10.0  # smallest distance to white used as a divisor, grey levels
MAX_DETAIL_GAIN = 3.0  # largest factor applied to detail


def low_pass(image: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Return the blurred image float32 (H, W) of the pixels in ``region`` bool (H, W) alone; 0 far from it.

    ``image`` float32 (H, W) in grey levels. A quarter of the pixels is blurred, then enlarged, with the same result.
    """
    image_and_weight = cv2.merge([image * region, region.astype(np.float32)])
    half = -(-image.shape[1] // 2), -(-image.shape[0] // 2)
    small = cv2.resize(image_and_weight, half, interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), SIGMA / 2)
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
