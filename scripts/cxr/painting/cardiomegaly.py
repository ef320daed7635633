"""Cardiomegaly: a smooth warp of columns that widens the heart and narrows the lungs beside it."""

import cv2
import numpy as np

from cxr.geometry.boxes import bounds
from cxr.painting.film import Asked, Film, Painted, ease

SMOOTH = 8.0
"""Deviation of the blur that takes the bends off the warp, px of 512."""
ABOVE, BELOW = 0.35, 0.25
"""Height of the bands above and below the heart in which the warp ends, in heights of the heart."""
CENTRE = 0.6
"""Share of the change that the heart's left border takes: the apex moves more than the right border."""
ROUNDS = 2
"""Times that the warp is corrected by the measured ratio."""


def warp(film: Film, widening: float, middle: float) -> np.ndarray:
    """Return the film with the heart's borders ``widening`` px farther apart, about column ``middle``; float32 (H, W).

    The outer edges of the lungs stay; between them and the heart the columns are compressed.
    """
    x1, y1, x2, y2 = bounds(film.heart)
    left, right = bounds(film.right)[0], bounds(film.left)[2]
    height, width = film.image.shape
    new1, new2 = x1 - (1 - CENTRE) * widening, x2 + CENTRE * widening
    new1, new2 = max(new1, left + 4.0), min(new2, right - 4.0)
    columns = np.arange(width, dtype=np.float32) + 0.5
    source = np.interp(columns, [0, left, new1, new2, right, width], [0, left, x1, x2, right, width])
    shift = cv2.GaussianBlur((source - columns).astype(np.float32)[None], (0, 0), SMOOTH)[0]
    fade = np.clip(np.minimum(columns - left, right - columns) / (3 * SMOOTH), 0, 1)
    rows = np.arange(height, dtype=np.float32) + 0.5
    tall = y2 - y1
    weight = ease(np.clip((rows - y1 + ABOVE * tall) / (2 * ABOVE * tall), 0, 1))
    weight = weight * ease(np.clip((y2 + BELOW * tall - rows) / (2 * BELOW * tall), 0, 1))
    x = np.broadcast_to(columns - 0.5, film.image.shape) + weight[:, None] * (shift * ease(fade))[None]
    y = np.broadcast_to(rows[:, None] - 0.5, film.image.shape)
    at = np.ascontiguousarray(x, np.float32), np.ascontiguousarray(y, np.float32)
    return cv2.remap(film.image, *at, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE), at


def paint(film: Film, asked: Asked, random: np.random.Generator) -> Painted:
    """Widen the heart until the cardiothoracic ratio is the one asked for; ``asked.measure`` tells what it is."""
    x1, _, x2, _ = bounds(film.heart)
    wide = bounds(film.left)[2] - bounds(film.right)[0]
    goal = asked.ratio if asked.ratio is not None else (x2 - x1) / wide + 0.06
    middle, widening, ratios = (x1 + x2) / 2, goal * wide - (x2 - x1), []
    new, at = warp(film, widening, middle)
    for _ in range(ROUNDS if asked.measure else 0):
        found = asked.measure(new)
        ratios.append(round(found, 4))
        if not np.isfinite(found) or abs(goal - found) < 0.004:
            break
        widening = max(0.0, widening + (goal - found) * wide)
        new, at = warp(film, widening, middle)
    heart = cv2.remap(film.heart.astype(np.uint8), *at, cv2.INTER_NEAREST) > 0
    told = {"goal": goal, "widening": float(widening), "measured": ratios}
    return Painted(np.clip(new, 0, 1).astype(np.float32), heart, told)
