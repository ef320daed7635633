"""Add the absorption of a lesion to an X-ray. The lesion brightens the image, and detail fades where water replaces
air. Vessels fade most. They are the structures that a median filter removes, unlike the edges of ribs."""

import cv2
import numpy as np

# The sizes of filters here and in the painters are pixels at an image size of 512 x 512.
VESSEL = 11  # side of the median filter that removes the vessels, px
GRAIN = 0.8  # SD of the blur that removes grain, which stays in the painted image, px
REACH = 16  # margin around a mask that is wide enough for the filters below, px
BASE = 18.0  # SD of the blur that separates brightness from detail, px
WHITE = 0.8  # quantile of the heart's brightness that is used as the brightness of water
ABOVE = 0.1  # brightness of the densest lesion between water (0) and white (1), because it may overlap the heart


def water_brightness(image: np.ndarray, heart: np.ndarray) -> float:
    """Return the brightness, 0..1, that the densest lesion approaches in ``image``, float32 (H, W) in 0..1. It is
    slightly above the brightness of the heart, bool (H, W), because a lesion may overlap the heart."""
    level = float(np.quantile(image[heart], WHITE)) if heart.any() else 0.8
    return level + ABOVE * (1 - level)


def crop_around(mask: np.ndarray) -> tuple[slice, slice]:
    """Return slices of the rows and columns that contain all True pixels of a mask, with :data:`REACH` px around."""
    spans = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    return tuple(slice(max(0, int(at[0]) - REACH), int(at[-1]) + REACH + 1) if len(at) else slice(0) for at in spans)


def extract_vessels(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the brightness that narrow structures, mainly vessels, add to their surroundings, float32 (H, W). They are
    the structures that a median filter removes from ``image``, float32 (H, W) in 0..1. Grain is ignored. Only pixels
    where ``mask``, bool (H, W), is True are filtered."""
    at = crop_around(mask)
    grey = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    if grey[at].size:
        grey[at] = cv2.medianBlur(np.ascontiguousarray(grey[at]), VESSEL)
    smooth = cv2.GaussianBlur(grey.astype(np.float32) / 255, (0, 0), 1.0)
    return cv2.GaussianBlur(image, (0, 0), GRAIN) - smooth


def brighten(image: np.ndarray, density: np.ndarray, white: float) -> np.ndarray:
    """Return ``image + (white - image) * density``. Pixels brighter than ``white`` are unchanged. A negative density
    darkens the image, as air does."""
    return image + np.clip(white - image, 0, None) * density


def add_absorption(image: np.ndarray, density: np.ndarray, white: float, flat: float, lost: float) -> np.ndarray:
    """Return the image, float32 (H, W), with a lesion of ``density``, float (H, W), whose brightness approaches
    ``white``. At the densest pixel, the contrast of all detail falls by the fraction ``flat``, and the contrast of
    vessels in addition by the fraction ``lost``."""
    weight = np.abs(density) / max(float(np.abs(density).max(initial=0.0)), 1e-6)
    base = cv2.GaussianBlur(image, (0, 0), BASE)
    detail = cv2.GaussianBlur(image, (0, 0), GRAIN) - base
    faded = weight * (flat * detail + lost * extract_vessels(image, weight > 0))
    new = np.clip(brighten(base, density, white) + (image - base) - faded, 0, 1)
    return np.where(density == 0, image, new).astype(np.float32)
