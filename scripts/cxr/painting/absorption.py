"""Adding absorption to a film: the lesion brightens it, and the film's detail fades where water replaces air.

Real opacities lose detail. Vessels are seen because air lies round them, so they fade most; ribs lie before and behind
the lung and keep most of their contrast. Vessels are what a median filter removes: they are narrow, and the edges of
ribs pass it.
"""

import cv2
import numpy as np

VESSEL = 11
"""Side of the median filter that takes the vessels off a film, px of 512."""
GRAIN = 0.8
"""Deviation of the blur that parts the film's grain, which no lesion takes away, from its detail, px of 512."""
REACH = 16
"""How far round a place its filters look, px of 512: more than half of any of them and of the blur after it."""
BASE = 18.0
"""Deviation of the blur that parts a film's brightness from its detail, px of 512."""
CURVES = ("screen", "log")
POWER = 0.5
"""How the grey curve of ``log`` saturates: brightness x = 1 - (1 + z) ** (-1 / POWER) at absorption z."""
WHITE = 0.8
"""Quantile of the heart's brightness that tells how bright water is on a film."""
ABOVE = 0.1
"""How far between that and white the brightest lesion lies: water before and behind other water adds a little."""


def water_brightness(image: np.ndarray, heart: np.ndarray) -> float:
    """Return the brightness that a lesion tends to on a film float32 (H, W) in 0..1.

    A lung full of fluid is as bright as the heart beside it, ``heart`` bool (H, W), and little brighter before it.
    """
    level = float(np.quantile(image[heart], WHITE)) if heart.any() else 0.8
    return level + ABOVE * (1 - level)


def crop_around(mask: np.ndarray) -> tuple[slice, slice]:
    """Return the rows and columns of bool (H, W) that hold what is True, and :data:`REACH` more on each side."""
    spans = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    return tuple(slice(max(0, int(at[0]) - REACH), int(at[-1]) + REACH + 1) if len(at) else slice(0) for at in spans)


def extract_vessels(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the narrow structures of a film float32 (H, W) in 0..1, without its grain: what a median takes off.

    They are right where ``mask``, bool (H, W), is True; the median, which takes longest, is not taken elsewhere.
    """
    at = crop_around(mask)
    grey = np.rint(np.clip(image, 0, 1) * 255).astype(np.uint8)
    if grey[at].size:
        grey[at] = cv2.medianBlur(np.ascontiguousarray(grey[at]), VESSEL)
    smooth = cv2.GaussianBlur(grey.astype(np.float32) / 255, (0, 0), 1.0)
    return cv2.GaussianBlur(image, (0, 0), GRAIN) - smooth


def brighten(image: np.ndarray, density: np.ndarray, curve: str, white: float = 1.0) -> np.ndarray:
    """Return a film with the absorption ``density`` (H, W) added; below 0 it is taken away (air in place of lung).

    ``white``: the brightness that an infinite absorption tends to; places that are brighter stay as they are.
    ``screen``: the density is the share of the missing brightness, x + (white - x) * density. ``log``: the same at half
    of the white, through a curve that saturates sooner.
    """
    if curve == "screen":
        return image + np.clip(white - image, 0, None) * density
    clear = np.clip(1 - image / white, 1 / 512, 1)
    added = 0.5**-POWER * (np.clip(1 - density, 0.02, None) ** -POWER - 1)
    return np.maximum(image, white * (1 - np.clip(clear**-POWER + added, 1, None) ** (-1 / POWER)))


def add_absorption(
    image: np.ndarray, density: np.ndarray, curve: str, white: float, flat: float, lost: float
) -> np.ndarray:
    """Return the film float32 (H, W) with a lesion of ``density`` (H, W); ``curve``, ``white``: see :func:`brighten`.

    ``flat``: share of all detail that goes at the densest place; ``lost``: share of the vessels' that goes besides.
    """
    weight = np.abs(density) / max(float(np.abs(density).max(initial=0.0)), 1e-6)
    base = cv2.GaussianBlur(image, (0, 0), BASE)
    faded = weight * (
        flat * (cv2.GaussianBlur(image, (0, 0), GRAIN) - base) + lost * extract_vessels(image, weight > 0)
    )
    new = np.clip(brighten(base, density, curve, white) + (image - base) - faded, 0, 1)
    return np.where(density == 0, image, new).astype(np.float32)
