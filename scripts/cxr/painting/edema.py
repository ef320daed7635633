"""Paint pulmonary edema: haze around the hila, thickened bronchi, septal lines and wide vessels."""

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box
from cxr.painting.absorption import add_absorption, extract_vessels, water_brightness
from cxr.painting.airspace import EDGE, draw_envelope, draw_reticulation
from cxr.painting.chest import Chest, PaintedImage, PaintRequest, Window, window_mask
from cxr.painting.lesions import noise

HILUM = (0.22, 0.48)  # distance of the hilum from medial edge and top of the lung's box, as fractions of the box


def draw_septal_lines(window: Window, number: int, random: np.random.Generator) -> np.ndarray:
    """Return a drawing of ``number`` short lines inwards from the lower lateral pleura, float32 (h, w), 1 on lines."""
    canvas = np.zeros(window.shape, np.uint8)
    _x1, y1, _x2, y2 = window.box
    for _ in range(number):
        row = int(y1 + (y2 - y1) * random.uniform(0.45, 0.95))
        at = np.flatnonzero((window.lung & window.inside)[min(row, window.shape[0] - 1)])
        if not len(at):
            continue
        wall = at[-1] if window.lateral > 0 else at[0]
        start = wall - window.lateral * random.uniform(2, 5)
        length, slope = random.uniform(8, 15), random.normal(0, 0.12)
        ends = np.array([[start, row], [start - window.lateral * length, row + slope * length]])
        cv2.polylines(canvas, [np.round(ends * 16).astype(np.int32)], False, 255, 1, cv2.LINE_AA, 4)
    return cv2.GaussianBlur(canvas.astype(np.float32) / 255, (0, 0), 0.6)


def draw_cuffs(
    window: Window, u: np.ndarray, v: np.ndarray, number: int, size: tuple, random: np.random.Generator
) -> np.ndarray:
    """Return a drawing, float32 (h, w), of thickened bronchi in cross-section: ``number`` bright rings with dark
    centres near the hilum. ``u``, ``v``: coordinates of the pixels, as fractions of the lung's box from its medial edge
    and top. ``size``: limits of the rings' diameter, px."""
    ring, hole = np.zeros((2, *window.shape), np.uint8)
    near = window.lung & window.inside & (np.hypot((u - HILUM[0] - 0.12) / 0.2, (v - HILUM[1]) / 0.18) < 1)
    ys, xs = np.nonzero(near)
    for _ in range(number if len(ys) else 0):
        pick = int(random.integers(len(ys)))
        wide = random.uniform(*size) / 2
        axes = 2 * wide, 2 * wide * random.uniform(0.75, 1.0)
        middle, turn = (float(xs[pick]), float(ys[pick])), float(random.uniform(0, 180))
        cv2.ellipse(ring, (middle, axes, turn), 255, 1, cv2.LINE_AA)
        cv2.circle(hole, (int(xs[pick]), int(ys[pick])), max(1, round(wide - 1.5)), 255, -1, cv2.LINE_AA)
    ring, hole = (cv2.GaussianBlur(part.astype(np.float32) / 255, (0, 0), 0.7) for part in (ring, hole))
    return ring - 0.2 * hole


def widen_vessels(image: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return the brightness, float32 (H, W), to add to an image so that vessels look wider where ``mask`` is True."""
    bright = np.clip(extract_vessels(image, mask), 0, None)
    grown = cv2.dilate(bright, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (5, 5)))
    return cv2.GaussianBlur(grown, (0, 0), 1.0) - bright


def paint(chest: Chest, request: PaintRequest, random: np.random.Generator) -> PaintedImage:
    """Paint edema into each place of the request."""
    total, added = np.zeros(chest.image.shape, np.float32), np.zeros(chest.image.shape, np.float32)
    lesion, parts = np.zeros(chest.image.shape, bool), []
    lines_only, cuffed = request.mentions("interstitial"), request.mentions("cuffing", "peribronchial")
    delta, reach = request.draw("delta", random), request.draw("reach", random)
    flat, lost = request.draw("flat", random), request.draw("lost", random)
    windows = [(place, window) for place in request.places if not (window := Window(chest, place)).empty]
    thick = widen_vessels(chest.image, window_mask(chest, (window for _, window in windows)))
    for place, window in windows:
        x1, y1, x2, y2 = bounding_box(chest.lung(place.side))
        y, x = np.mgrid[window.at].astype(np.float32) + 0.5
        # coordinates from the medial edge and from the top, as fractions of the lung's box
        u, v = ((x - x1) if place.side == "left" else (x2 - x)) / (x2 - x1), (y - y1) / (y2 - y1)
        soft = request.draw("soft", random)
        fade = window.fade_weights(request.ranges["fade"]) * draw_envelope(window, soft, 2.5, 0.1, random)
        # a perihilar cloud with an even haze that increases towards the base
        base = request.draw("base", random)
        bat = np.exp(-(((u - HILUM[0]) / reach) ** 2) - ((v - HILUM[1]) / (0.75 * reach)) ** 2)
        fluffy = np.clip(1 + 0.28 * noise(window.shape, max(6.0, window.reach / 5), random, 3), 0.4, 1.6)
        even = base * (0.7 + 0.6 * np.clip(v, 0, 1))
        cloud = (even + (1 - base) * bat * fluffy).astype(np.float32)
        if lines_only:
            cloud *= np.clip(1 + 0.35 * draw_reticulation(window.shape, 12.0, random), 0, None)
        lines, rings = request.draw_count("lines", random), request.draw_count("cuffs", random) * (2 if cuffed else 1)
        total[window.at] = np.maximum(total[window.at], delta * (0.7 if lines_only else 1.0) * fade * cloud)
        marks = 0.7 * draw_septal_lines(window, lines, random)
        marks += draw_cuffs(window, u, v, rings, request.ranges["cuff_size"], random)
        added[window.at] += (fade > 0.05) * (0.2 * delta * marks + 0.5 * np.clip(fade * cloud, 0, 1) * thick[window.at])
        density = fade * cloud
        lesion[window.at] |= (density >= EDGE * np.quantile(density[window.lung & window.inside], 0.98)) & window.inside
        parts.append({"lines": lines, "cuffs": rings, "side": place.side})
    new = add_absorption(chest.image, np.clip(total, 0, 0.85), water_brightness(chest.image, chest.heart), flat, lost)
    parameters = {"delta": delta, "reach": reach, "flat": flat, "lost": lost, "parts": parts}
    return PaintedImage(np.clip(new + added, 0, 1).astype(np.float32), lesion & (total > 0), parameters)
