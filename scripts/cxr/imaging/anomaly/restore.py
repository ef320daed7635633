"""Remove a lesion from an image, given its probability and the grey levels that it adds at each pixel.

Absorption is multiplicative, so the edit scales each pixel's distance to white. The same factor restores the contrast
of ribs and vessels under the lesion. It is computed on a low-pass image, so finer structures keep their position. No
pixel becomes darker than the healthy parts of the same lungs: a stronger edit approaches that level and never passes
it. The edit fades towards the outline of lungs and heart. One rule treats both lungs.
"""

import cv2
import numpy as np

SIGMA = 8.0
"""Deviation in pixels of the low-pass picture: about a rib's width."""
FADE = 8.0
"""Pixels from the outline of the region within which the edit fades to nothing."""
UNSUSPICIOUS = 0.3
"""Suspicion below which a place counts as healthy."""
LEAST = 0.1
"""Share of the lungs that counts as healthy at least: the least suspicious ones."""
DARKEST = 0.5
"""Percentile of the healthy parts' pixels that is the darkest a place may become."""
BLACK = 4.0
"""Darkest grey level that an edit may make: a lung holds tissue, only the air beside the patient is black."""
WHITE = 255.0
THIN = 10.0
"""Least distance to white that is divided by, in grey levels."""
STEEP = 3.0
"""Most by which a fine structure is brought out."""


def low_pass(image: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Return the blurred picture float32 (H, W) of the pixels in ``region`` bool (H, W) alone; 0 far from it.

    ``image`` float32 (H, W) in grey levels. The blur is that of a quarter of the pixels, enlarged: no structure that
    could tell the two apart is left.
    """
    both = cv2.merge([image * region, region.astype(np.float32)])
    small = cv2.resize(both, (-(-image.shape[1] // 2), -(-image.shape[0] // 2)), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), SIGMA / 2)
    mean = small[..., 0] / np.maximum(small[..., 1], 1e-3)
    return cv2.resize(mean, image.shape[::-1], interpolation=cv2.INTER_LINEAR)


def fade(region: np.ndarray) -> np.ndarray:
    """Return float32 (H, W): 0 outside ``region`` bool (H, W) and at its outline, 1 from ``FADE`` pixels inside."""
    depth = cv2.distanceTransform(np.pad(region, 1).astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    share = np.clip((depth - 0.5) / FADE, 0, 1)
    return share * share * (3 - 2 * share)


def healthy_parts(lungs: np.ndarray, suspicion: np.ndarray) -> np.ndarray:
    """Return bool (H, W): the places of ``lungs`` bool (H, W), not empty, that look healthy.

    ``suspicion`` float32 (H, W): 0..1.
    """
    found = lungs & (suspicion < UNSUSPICIOUS)
    if np.count_nonzero(found) >= LEAST * np.count_nonzero(lungs):
        return found
    return lungs & (suspicion <= np.quantile(suspicion[lungs], LEAST))


def restored(
    image: np.ndarray, region: np.ndarray, lungs: np.ndarray, suspicion: np.ndarray, excess: np.ndarray
) -> np.ndarray:
    """Return the picture without lesions, float32 (H, W) in grey levels.

    ``image`` uint8 (H, W), ``region`` bool (H, W) where an edit is allowed, ``lungs`` bool (H, W), a part of it and not
    empty, ``suspicion`` float32 (H, W): how surely a lesion lies there, 0..1, ``excess`` float32 (H, W) >= 0: the grey
    levels that are to come off.
    """
    x, y, width, height = cv2.boundingRect(region.astype(np.uint8))
    place = slice(y, y + height), slice(x, x + width)
    grey, lungs, suspicion = image[place].astype(np.float32), lungs[place], suspicion[place]
    low = low_pass(grey, region[place])
    darkest = np.float32(max(np.percentile(grey[healthy_parts(lungs, suspicion)], DARKEST), BLACK))
    room = np.maximum(low - darkest, 1e-3)
    off = room * (1 - np.exp(-excess[place] / room)) * fade(region[place])
    structure = np.clip((WHITE - grey) / np.maximum(WHITE - low, THIN), 0, STEEP)
    result = image.astype(np.float32)
    result[place] = np.maximum(grey - off * structure, np.minimum(grey, darkest))
    return result
