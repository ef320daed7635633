"""Add absorption to an X-ray: the lesion brightens the image, and detail fades where water replaces air. Vessels fade
most. They are found by a median filter, which removes them but preserves the edges of ribs."""

import cv2
import numpy as np

VESSEL = 11  # side of the median filter that removes the vessels, px of 512
GRAIN = 0.8  # SD of the blur that separates detail from grain, which lesions do not remove, px of 512
REACH = 16  # margin that covers the filters and the blur after them, px of 512
BASE = 18.0  # SD of the blur that separates brightness from detail, px of 512
WHITE = 0.8  # quantile of the heart's brightness that is used as the brightness of water
ABOVE = 0.1  # brightness of the densest lesion between water (0) and white (1), because it may overlap the heart


def water_brightness(image: np.ndarray, heart: np.ndarray) -> float:
    """Return the brightness that a dense lesion approaches in an image float32 (H, W) in 0..1. A lung full of fluid is
    as bright as the heart, ``heart`` bool (H, W), and slightly brighter where it overlaps the heart."""
    level = float(np.quantile(image[heart], WHITE)) if heart.any() else 0.8
    return level + ABOVE * (1 - level)


def crop_around(mask: np.ndarray) -> tuple[slice, slice]:
    """Return the rows and columns that contain the True pixels of bool (H, W), with a margin of :data:`REACH`."""
    spans = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    return tuple(slice(max(0, int(at[0]) - REACH), int(at[-1]) + REACH + 1) if len(at) else slice(0) for at in spans)


def extract_vessels(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the narrow structures, without grain, that a median filter removes from an image float32 (H, W) in 0..1,
    where ``mask`` bool (H, W) is True."""
    at = crop_around(mask)
    grey = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    if grey[at].size:
        grey[at] = cv2.medianBlur(np.ascontiguousarray(grey[at]), VESSEL)
    smooth = cv2.GaussianBlur(grey.astype(np.float32) / 255, (0, 0), 1.0)
    return cv2.GaussianBlur(image, (0, 0), GRAIN) - smooth


def brighten(image: np.ndarray, density: np.ndarray, white: float) -> np.ndarray:
    """Return x + (white - x) * density for an image x; pixels brighter than ``white`` are unchanged. A negative density
    removes absorption (air)."""
    return image + np.clip(white - image, 0, None) * density


def add_absorption(image: np.ndarray, density: np.ndarray, white: float, flat: float, lost: float) -> np.ndarray:
    """Return the image float32 (H, W) with a lesion of ``density`` (H, W) added. ``flat``: fraction of all detail that
    is lost at the densest pixel; ``lost``: fraction of the vessels that is lost in addition."""
    weight = np.abs(density) / max(float(np.abs(density).max(initial=0.0)), 1e-6)
    base = cv2.GaussianBlur(image, (0, 0), BASE)
    detail = cv2.GaussianBlur(image, (0, 0), GRAIN) - base
    faded = weight * (flat * detail + lost * extract_vessels(image, weight > 0))
    new = np.clip(brighten(base, density, white) + (image - base) - faded, 0, 1)
    return np.where(density == 0, image, new).astype(np.float32)
