"""Paint opacities and consolidations: fluid or pus in the air spaces, with ragged edges that fade into the lung."""

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box
from cxr.painting.absorption import add_absorption, water_brightness
from cxr.painting.chest import Chest, PaintedImage, PaintRequest, Window, smoothstep, soft_step
from cxr.painting.lesions import noise

MAX_GAIN = 2.0  # maximum factor by which a faint lesion is made denser
BEYOND = 0.7  # outward shift of a lesion's outline at sides where the lung ends, in half box sizes
FISSURE = (0.5, 0.55)  # (medial, lateral) end of the minor fissure: distance from the right lung's top, in lung heights
EDGE = 0.10  # fraction of the highest density from which a pixel belongs to the lesion's mask


def draw_envelope(
    window: Window, soft: float, exponent: float, ragged: float, random: np.random.Generator
) -> np.ndarray:
    """Return weights, float32 (h, w), of a lesion that fills the window's box: 1 in the core, 0 outside a superellipse
    with ``exponent``. In half box sizes, ``soft`` is the width of the edge, ``ragged`` the SD of its random shifts."""
    u, v = window.box_coordinates(BEYOND)
    r = (np.abs(u) ** exponent + np.abs(v) ** exponent) ** (1 / exponent)
    coarse = noise(window.shape, max(window.size) / 3, random, 2)
    fine = noise(window.shape, max(4.0, window.reach / 12), random, 2)
    depth = 1.06 - r + ragged * (0.8 * coarse + 0.2 * fine)
    t = np.clip(depth / soft, 0, 1)
    return (t * (2 - t)).astype(np.float32)


def draw_patches(window: Window, base: float, cores: int, random: np.random.Generator) -> np.ndarray:
    """Return the density, float32 (h, w), of a haze of density ``base`` with ``cores`` denser cores, at most 1."""
    u, v = window.box_coordinates()
    core_density = np.zeros(window.shape, np.float32)
    for _ in range(cores):
        x, y = random.uniform(-0.5, 0.5, 2)
        wide, tall = random.uniform(0.35, 0.75, 2)
        r = np.hypot((u - x) / wide, (v - y) / tall) + 0.25 * noise(window.shape, window.reach / 3, random, 2)
        core_density = np.maximum(core_density, random.uniform(0.8, 1.0) * smoothstep(np.clip(1.4 - r, 0, 1)))
    return base + (1 - base) * core_density


def draw_reticulation(shape: tuple[int, int], cell: float, random: np.random.Generator) -> np.ndarray:
    """Return a network of fine bright lines, float32 (h, w), with a mean of 0. ``cell``: size of the meshes, px."""
    net = np.clip(1 - 2.2 * np.abs(noise(shape, cell, random, 1)), 0, 1)
    net = np.maximum(net, np.clip(1 - 2.6 * np.abs(noise(shape, 0.7 * cell, random, 1)), 0, 1))
    net = cv2.GaussianBlur(net.astype(np.float32), (0, 0), 0.8)
    return net - net.mean()


def draw_bronchi(window: Window, stems: int, random: np.random.Generator) -> np.ndarray:
    """Return a drawing of ``stems`` air-filled bronchi, float32 (h, w), 1 on a bronchus and 0 elsewhere. They start at
    the medial side of the box, branch and become thinner."""
    canvas = np.zeros(window.shape, np.uint8)
    x1, y1, x2, y2 = window.box
    start = np.array([x1 if window.lateral > 0 else x2, y1 + (y2 - y1) * random.uniform(0.15, 0.45)])
    for _ in range(stems):
        _draw_branch(canvas, start, random.uniform(-0.4, 1.1), window, random.uniform(1.6, 2.8), random, 2)
    return cv2.GaussianBlur(canvas.astype(np.float32) / 255, (0, 0), 0.7)


def _draw_branch(canvas, at, angle, window, thick, random, forks) -> None:
    """Draw a bronchus that starts at the point ``at``, and ``forks`` levels of branches. ``angle``: direction in
    radians, 0 for lateral, positive for downwards."""
    length = window.reach * random.uniform(0.35, 0.6)
    points = [at]
    for _ in range(6):
        angle += random.normal(0, 0.12)
        points.append(points[-1] + length / 6 * np.array([window.lateral * np.cos(angle), np.sin(angle)]))
    pixels = [np.round(np.array(points) * 16).astype(np.int32)]
    cv2.polylines(canvas, pixels, False, 255, max(1, round(thick)), cv2.LINE_AA, 4)
    if forks and thick > 1.2:
        for turn in (-1, 1):
            fork_angle = angle + turn * random.uniform(0.25, 0.55)
            _draw_branch(canvas, points[-1], fork_angle, window, 0.7 * thick, random, forks - 1)


def draw_density(window: Window, request: PaintRequest, random: np.random.Generator) -> tuple[np.ndarray, dict]:
    """Return the density of a lesion in ``window``, float32 (h, w), and the parameters that were sampled for it. The
    maximum of the density is about the parameter ``delta``."""
    patchy, glass = request.mentions("patchy"), request.mentions("ground-glass", "ground glass")
    soft, exponent = request.draw("soft", random), request.draw("exponent", random)
    delta = request.draw("delta", random) * (request.ranges["ground_glass"] if glass else 1.0)
    base = request.draw("patchy_base" if patchy else "base", random)
    cores = request.draw_count("patchy_cores" if patchy else "cores", random)
    density = draw_envelope(window, soft, exponent, request.ranges["ragged"], random)
    density = density * draw_patches(window, base, cores, random)
    u, v = window.box_coordinates()  # denser towards the sides where the lung ends
    left_share, top_share, right_share, bottom_share = window.lung_border_shares()
    slope = (right_share - left_share) * u + (bottom_share - top_share) * v
    density *= np.clip(1 + request.ranges["lean"] * slope, 0.3, None).astype(np.float32)
    grain = noise(window.shape, max(3.0, window.reach / 9), random, 2)
    density *= np.clip(1 + request.ranges["texture"] * grain, 0, None)
    parameters = {"delta": delta, "soft": soft, "exponent": exponent, "base": base, "cores": cores}
    if request.mentions("infiltrate", "reticular"):
        net = draw_reticulation(window.shape, max(5.0, window.reach / 12), random)
        density *= np.clip(1 + request.ranges["net"] * net, 0, None)
        parameters["net"] = request.ranges["net"]
    if "bronchograms" in request.ranges and not glass:
        stems = request.draw_count("bronchograms", random)
        density *= 1 - request.draw("bronchogram", random) * draw_bronchi(window, stems, random)
        parameters["bronchograms"] = stems
    return delta * density, parameters


def bound_by_fissure(chest: Chest, window: Window, words: str) -> np.ndarray | None:
    """Return weights, float32 (h, w), that cut off a lesion at the minor fissure, the only fissure seen edge-on. Return
    None unless the prompt ``words`` names the right upper or middle lobe. At most a quarter of the box is cut off."""
    upper, middle = "upper lobe" in words, "middle lobe" in words
    if "right" not in words or not (upper or middle):
        return None
    lung_x1, lung_y1, lung_x2, lung_y2 = bounding_box(chest.right)
    y, x = np.mgrid[window.at].astype(np.float32) + 0.5
    lateral = 1 - (x - lung_x1) / max(1, lung_x2 - 1 - lung_x1)
    line = lung_y1 + (lung_y2 - 1 - lung_y1) * (FISSURE[0] + (FISSURE[1] - FISSURE[0]) * lateral)
    top, tall = window.rows.start + window.box[1], window.size[1]
    line = np.maximum(line, top + 0.75 * tall) if upper else np.minimum(line, top + 0.25 * tall)
    return soft_step((line - y) if upper else (y - line), 3.0)


def paint(chest: Chest, request: PaintRequest, random: np.random.Generator) -> PaintedImage:
    """Paint an opacity, a consolidation or a nodule into each place. These differ only in ``request.ranges``."""
    white = water_brightness(chest.image, chest.heart)
    total, parts, lesion = np.zeros(chest.image.shape, np.float32), [], np.zeros(chest.image.shape, bool)
    for place in request.places:
        window = Window(chest, place)
        if window.empty:
            continue
        density, parameters = draw_density(window, request, random)
        density *= window.fade_weights(request.ranges["fade"])
        fissure = bound_by_fissure(chest, window, request.words.lower()) if request.ranges.get("fissure") else None
        if fissure is not None:
            density *= fissure
        lung_in_box, deviation = window.lung & window.inside, max(float(chest.image[chest.lungs].std()), 1e-6)
        added = float((np.clip(white - window.image, 0, None) * density)[lung_in_box].mean()) / deviation
        gain = min(MAX_GAIN, max(1.0, request.ranges["least"] / max(added, 1e-6)))
        density *= gain
        total[window.at] = np.maximum(total[window.at], np.clip(density, 0, 0.85))
        lesion[window.at] |= (density >= EDGE * np.quantile(density[lung_in_box], 0.98)) & window.inside
        parts.append(parameters | {"raised": round(gain, 4), "side": place.side})
    flat, lost = request.draw("flat", random), request.draw("lost", random)
    painted = add_absorption(chest.image, total, white, flat, lost)
    return PaintedImage(painted, lesion & (total > 0), {"parts": parts, "flat": flat, "lost": lost})
