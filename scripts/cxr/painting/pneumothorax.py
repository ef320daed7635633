"""Pneumothorax: air between lung and chest wall. A thin pleural line; beyond it no vessels, and slightly darker."""

import cv2
import numpy as np

from cxr.painting.absorb import vessels
from cxr.painting.film import Asked, Film, Painted, Window, ease
from cxr.painting.lesions import noise

BEND = 5.0
"""Deviation of the blur that rounds the pleural line where the wall bends, px of 512."""
FAR = 21
"""Side of the median filter that also takes the broader vessels off, px of 512."""


def outer_distance(lung: np.ndarray, lateral: int) -> np.ndarray:
    """Return each pixel's distance from the chest wall, float32 (H, W), px: from the lung's upper and lateral border.

    The border at the mediastinum and at the diaphragm does not count.
    """
    lung = lung if lateral > 0 else lung[:, ::-1]
    wall = ~lung
    # what lies medial of the lung in a row, or below it in a column, is no wall
    reached = np.logical_or.accumulate(lung, axis=1)
    wall &= reached | (np.logical_or.accumulate(lung, axis=0) == 0)
    wall &= ~(
        np.logical_or.accumulate(lung, axis=0)
        & ~np.logical_or.accumulate(lung[::-1], axis=0)[::-1]
        & (np.cumsum(lung, axis=1) < lung.sum(axis=1, keepdims=True))
    )
    found = cv2.distanceTransform((~wall).astype(np.uint8), cv2.DIST_L2, 5)
    return found if lateral > 0 else found[:, ::-1]


def paint(film: Film, asked: Asked, random: np.random.Generator) -> Painted:
    """Paint a pneumothorax into each place."""
    new, lesion, drawn = film.image.copy(), np.zeros(film.image.shape, bool), []
    narrow = vessels(film.image)
    grey = np.rint(np.clip(film.image, 0, 1) * 255).astype(np.uint8)
    broad = cv2.GaussianBlur(film.image, (0, 0), 0.8) - cv2.GaussianBlur(
        cv2.medianBlur(grey, FAR).astype(np.float32) / 255, (0, 0), 1.5
    )
    for place in asked.places:
        window = Window(film, place)
        if window.empty:
            continue
        at, lung = (window.rows, window.columns), film.lung(place.side)
        wide = int(np.ptp(np.flatnonzero(lung.any(axis=0)))) + 1
        distance = cv2.GaussianBlur(outer_distance(lung, window.lateral), (0, 0), BEND)[at]
        part = window.lung & window.inside
        _x1, y1, _x2, y2 = window.box
        low, high = asked.ranges["depth"]
        deepest = float(np.clip(np.quantile(distance[part], 0.97), low * wide, high * wide))
        y = np.arange(window.shape[0], dtype=np.float32)[:, None] + 0.5
        down = np.clip((y - y1) / max(1, y2 - y1), 0, 1)
        taper = (1 - down**2.2) if asked.says("apical", "apex") else (1 - 0.75 * down**1.6)
        wave = 1 + 0.05 * noise((window.shape[0], 1), max(10.0, window.shape[0] / 3), random, 1)
        border = deepest * taper * wave
        side = window.fading_box(0.1) * window.lung
        air = ease(np.clip((border - distance) / 2.0 + 0.5, 0, 1)) * side
        line_width = asked.draw("line", random)
        line = np.exp(-0.5 * ((distance - border - 0.5 * line_width) / (0.5 * line_width)) ** 2) * side * (border > 3)
        dark, bright = asked.draw("darker", random), asked.draw("brightness", random)
        gone, denser = asked.draw("lost", random), asked.draw("denser", random)
        inner = np.exp(-np.clip(distance - border, 0, None) / max(0.5 * deepest, 4)) * (1 - air) * side
        image = film.image[at]
        image = image - air * gone * np.where(np.abs(broad[at]) < 0.06, broad[at], narrow[at])
        image = image * (1 - dark * air) + (1 - image) * denser * inner + bright * line
        new[at] = np.where(side > 0, image, new[at])
        lesion[at] |= (air > 0.5) | (line > 0.5)
        told = {"depth": deepest / wide, "line": line_width, "darker": dark, "lost": gone, "denser": denser}
        drawn.append(told | {"side": place.side})
    return Painted(np.clip(new, 0, 1).astype(np.float32), lesion, {"parts": drawn})
