"""Pleural effusion: a homogeneous level of fluid that rises at the chest wall and hides the diaphragm."""

import cv2
import numpy as np

from cxr.painting.absorb import GRAIN, vessels, water
from cxr.painting.film import Asked, Film, Painted, Window, ease
from cxr.painting.lesions import noise

BASE = 14.0
"""Deviation of the blur that parts brightness from detail: a diaphragm under fluid is detail, px of 512."""
FADE = 10.0
"""Depth below the lung over which the fluid is lost in the brightness of the abdomen, px of 512."""
DARKER = 0.05
"""How much the smoothing may darken the abdomen, of 1."""
LAYER = 0.2
"""Thickness of the fluid that lies over the dome of the diaphragm, in heights of the box."""
COLUMNS = 12.0
"""Deviation of the blur over neighbouring columns of the abdomen, px of 512."""
FEWEST = 200
"""Pixels of the abdomen that are needed to read its brightness."""
DEEP = 40
"""Depth below the lung to which the brightness of the abdomen is read, px of 512."""
EDGE = 0.25
"""Share of the fluid's full depth from which a pixel belongs to the mask."""


def below(window: Window) -> np.ndarray:
    """Return the pixels under the lung, bool (h, w): in its columns, below its lowest pixel."""
    seen = np.logical_or.accumulate(window.lung, axis=0)
    lower = np.logical_or.accumulate(window.lung[::-1], axis=0)[::-1]
    return seen & ~lower


def _abdomen(film: Film, window: Window) -> np.ndarray:
    """Return how bright the abdomen is below each column of the lung, float32 (1, w): thinner at the side, darker.

    Without an abdomen on the film it is the brightness of water.
    """
    reach = np.ones((2 * DEEP + 1, 1), np.uint8)
    belly = below(window) & (cv2.dilate(window.lung.astype(np.uint8), reach) > 0)
    if belly.sum() < FEWEST:
        return np.full((1, window.shape[1]), water(film.image, film.heart), np.float32)
    sums = np.stack([(window.image * belly).sum(axis=0), belly.sum(axis=0).astype(np.float32)])
    sums = cv2.GaussianBlur(sums, (0, 0), COLUMNS, sigmaY=1e-3, borderType=cv2.BORDER_CONSTANT)
    level = float(window.image[belly].mean())
    return np.where(sums[1] > 1, sums[0] / np.maximum(sums[1], 1e-6), level).astype(np.float32)[None]


def laterality(window: Window) -> np.ndarray:
    """Return float32 (1, w): 0 at the medial edge of the lung in the box, 1 at the lateral one."""
    x1, _, x2, _ = window.box
    t = np.clip((np.arange(window.shape[1], dtype=np.float32)[None] + 0.5 - x1) / max(1, x2 - x1), 0, 1)
    return t if window.lateral > 0 else 1 - t


def fluid(window: Window, rise: float, soft: float, random: np.random.Generator) -> np.ndarray:
    """Return how deep the fluid is, float32 (h, w) in 0..1: 0 above the meniscus, 1 well below it.

    The highest point, at the chest wall, is the box's upper side; the level is ``rise`` of itself lower in the middle.
    """
    _, y1, _, y2 = window.box
    tall, u = y2 - y1, laterality(window)
    level = tall / (1 + rise)
    wave = 0.02 * tall * noise((1, window.shape[1]), max(8.0, window.shape[1] / 3), random, 1)
    climb = np.clip((u - 0.25) / 0.75, 0, 1) ** 2.2
    surface = y2 - level - (tall - level) * climb + 0.25 * level * np.clip(0.35 - u, 0, 1) + wave
    dome = window.shape[0] - np.argmax(window.lung[::-1], axis=0).astype(np.float32)[None]
    dome = np.where(window.lung.any(axis=0)[None], cv2.GaussianBlur(dome, (0, 0), 5.0), np.inf)
    surface = np.minimum(surface, np.maximum(dome - LAYER * tall * (0.4 + 0.6 * u), y1))
    y = np.arange(window.shape[0], dtype=np.float32)[:, None] + 0.5
    # the film of fluid thins out upwards: soft above, and more so at the wall
    width = soft * tall * (1 + climb)
    return ease(np.clip((y - surface) / np.maximum(width, 2.0) + 0.3, 0, 1)).astype(np.float32)


def paint(film: Film, asked: Asked, random: np.random.Generator) -> Painted:
    """Paint an effusion into each place."""
    new, lesion, drawn = film.image.copy(), np.zeros(film.image.shape, bool), []
    for place in asked.places:
        window = Window(film, place, margin=DEEP)
        if window.empty:
            continue
        delta, soft, rise = (asked.draw(name, random) for name in ("delta", "soft", "rise"))
        flat, lost = asked.draw("flat", random), asked.draw("lost", random)
        depth = fluid(window, rise, soft, random)
        under, bright = below(window), _abdomen(film, window)
        deep = cv2.distanceTransform((~window.lung).astype(np.uint8), cv2.DIST_L2, 5)
        wet = np.maximum(window.fading(0.02), under * np.exp(-deep / FADE) * window.fading_box(0.1)) * depth
        base = cv2.GaussianBlur(window.image, (0, 0), BASE)
        detail = flat * (cv2.GaussianBlur(window.image, (0, 0), GRAIN) - base) + lost * vessels(window.image)
        _, y1, _, y2 = window.box
        rows = np.clip((np.arange(window.shape[0], dtype=np.float32)[:, None] - y1) / max(1, y2 - y1), 0, 1)
        amount = wet * (delta + (1 - delta) * np.sqrt(rows))
        at = window.rows, window.columns
        smooth = window.image - wet * detail + amount * np.clip(bright - base, 0, None)
        # the abdomen under the fluid is as bright already: it is hardly darkened
        least = window.image - np.where(window.lung, 1.0, DARKER)
        new[at] = np.where(wet > 0, np.maximum(smooth, least), new[at])
        lesion[at] |= (wet >= EDGE) & window.inside
        drawn.append({"delta": delta, "soft": soft, "rise": rise, "flat": flat, "lost": lost, "side": place.side})
    return Painted(np.clip(new, 0, 1).astype(np.float32), lesion, {"parts": drawn})
