"""Generating a realistic synthetic frontal chest X-ray with masks of its organs.

The image is a sum of random absorptions, blurred by scatter, with photon noise and a display curve. We chose all
amounts by visual comparison with real radiographs.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from cxr.imaging.phantom.shapes import Anatomy, View, curve, draw_anatomy, level, organ_masks
from cxr.painting.lesions import noise


@dataclass
class Chest:
    """A synthetic X-ray and its ground truth.

    image: float32 (H, W) in 0..1, with dense tissue bright. masks: {label: bool (H, W)} for right lung, left lung,
    heart, cardiomediastinum and the other 13 zone labels. midline: column of the patient's midline, pixels. ctr:
    cardiothoracic ratio, the width of the heart divided by the outer width of both lungs.
    """

    image: np.ndarray
    masks: dict[str, np.ndarray]
    midline: float
    ctr: float


def _blur(picture: np.ndarray, sigma: float) -> np.ndarray:
    shrink = max(1, int(sigma / 4))
    if shrink == 1:
        return cv2.GaussianBlur(picture, (0, 0), max(sigma, 0.3))
    shape = (max(8, picture.shape[1] // shrink), max(8, picture.shape[0] // shrink))
    small = cv2.GaussianBlur(cv2.resize(picture, shape, interpolation=cv2.INTER_AREA), (0, 0), sigma / shrink)
    return cv2.resize(small, (picture.shape[1], picture.shape[0]), interpolation=cv2.INTER_CUBIC)


def _thickness(mask: np.ndarray, reach: float) -> np.ndarray:
    """Return the thickness of a rounded body from its silhouette: 0 at the edge, 1 from ``reach`` pixels inside."""
    distance = cv2.distanceTransform((mask > 0.5).astype(np.uint8), cv2.DIST_L2, 5)
    t = np.clip(distance / reach, 0.0, 1.0)
    return np.sqrt(t * (2.0 - t)).astype(np.float32)


def _ribs(anatomy: Anatomy, view: View, rng: np.random.Generator) -> np.ndarray:
    total = np.zeros(view.shape, np.float32)
    tilt, gap = float(rng.normal(0, 0.01)), float(rng.uniform(0.060, 0.070))
    width = float(rng.uniform(0.017, 0.024))
    front_strength = float(rng.uniform(0.45, 0.9))
    for sign, side in ((-1.0, "right lung"), (1.0, "left lung")):
        outline = anatomy.lungs[side]
        top = anatomy.lung_box[side][0]
        wall_x, wall_y = np.abs(outline[:, 0]), outline[:, 1]
        lateral = wall_x > 0.12
        for number in range(10):
            start = top - 0.03 + number * gap
            lift, fall = 0.028 + 0.002 * number, 0.085 + 0.013 * number + tilt * sign
            at = np.clip(start + fall, top + 0.02, wall_y[lateral].max())
            near = lateral & (np.abs(wall_y - at) < 0.03)
            outer = float(wall_x[near].max()) + 0.012 if near.any() else 0.2
            back = curve([
                (0.035, start + 0.015), (0.30 * outer + 0.03, start - lift * 0.4),
                (0.62 * outer, start - lift * 0.2 + 0.02), (0.88 * outer, start + fall * 0.5), (outer, start + fall),
            ])  # fmt: skip
            front_end = (0.10 + 0.012 * number, start + fall + 0.115 + 0.012 * number)
            front = curve([
                (outer, start + fall), (0.93 * outer, start + fall + 0.06),
                (0.6 * outer + 0.3 * front_end[0], start + fall + 0.115 + 0.004 * number), front_end,
            ])  # fmt: skip
            for part, strength, thick in ((back, 1.0, width), (front, front_strength, width * 1.2)):
                if part is front and number > 6:
                    continue
                points = part * np.array([sign, 1.0])
                total += strength * (0.75 * view.line(points, thick) - 0.28 * view.line(points, thick * 0.55))
    return _blur(total, 0.0028 * view.unit)


def _vessels(anatomy: Anatomy, view: View, rng: np.random.Generator) -> np.ndarray:
    canvas = view.canvas()
    segments: list[tuple[float, np.ndarray]] = []

    def grow(at: np.ndarray, angle: float, width: float, length: float, depth: int, sign: float) -> None:
        bend = float(rng.normal(0, 0.25))
        middle = at + length * 0.5 * np.array([sign * np.cos(angle), np.sin(angle)])
        end = middle + length * 0.5 * np.array([sign * np.cos(angle + bend), np.sin(angle + bend)])
        segments.append((width, np.array([at, middle, end])))
        if depth == 0:
            return
        for turn in (rng.uniform(0.15, 0.6), -rng.uniform(0.15, 0.6)):
            thinner = width * float(rng.uniform(0.6, 0.8))
            grow(end, angle + bend * 0.5 + float(turn), thinner, length * rng.uniform(0.68, 0.9), depth - 1, sign)

    for sign, side in ((-1.0, "right"), (1.0, "left")):
        hilum = np.array(anatomy.hilum[side])
        for angle in (-1.25, -0.8, -0.35, 0.1, 0.5, 0.9, 1.25, 1.45):
            width = float(rng.uniform(0.006, 0.0105)) * (1.3 if angle > 0.8 else 1.0)
            at = hilum + rng.normal(0, 0.012, 2)
            grow(at, angle + float(rng.normal(0, 0.1)), width, float(rng.uniform(0.06, 0.10)), 5, sign)
    for width, points in sorted(segments, key=lambda item: item[0]):
        view.stroke(canvas, points, width, 0.25 + min(1.0, width / 0.012) * 0.75)
    hila = view.canvas()
    for centre in anatomy.hilum.values():
        view.disc(hila, centre, (0.026, 0.055))
    return _blur(level(canvas), 0.0016 * view.unit) + 0.75 * _blur(level(hila), 0.014 * view.unit)


def _spine(anatomy: Anatomy, view: View, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    column = _blur(view.line(anatomy.spine, 0.072), 0.006 * view.unit)
    phase, pitch = float(rng.uniform(0, 6.28)), float(rng.uniform(0.046, 0.054))
    discs = 1.0 - 0.22 * np.clip(np.cos(6.2832 * y / pitch + phase), 0.3, 1.0)
    processes = view.canvas()
    for row in np.arange(-0.05, 1.2, pitch):
        view.disc(processes, (np.interp(row, anatomy.spine[:, 1], anatomy.spine[:, 0]), row), (0.008, 0.011))
    return column * discs + 0.3 * _blur(level(processes), 0.003 * view.unit)


def _shoulder_girdle(view: View, rng: np.random.Generator, ap: bool) -> np.ndarray:
    total = np.zeros(view.shape, np.float32)
    for sign in (-1.0, 1.0):
        inner, outer = 0.155 + float(rng.normal(0, 0.012)), (0.075 if ap else 0.115) + float(rng.normal(0, 0.02))
        corners = [(0.035, inner), (0.10, inner - 0.012), (0.21, outer + 0.02), (0.33, outer - 0.01), (0.45, outer)]
        points = curve(corners)
        total += view.line(points * [sign, 1], 0.027) - 0.3 * view.line(points * [sign, 1], 0.014)
        shift = -0.06 if ap else 0.03
        corners = [(0.31, 0.17), (0.43, 0.15), (0.46, 0.21), (0.405, 0.33), (0.385, 0.46), (0.365, 0.42), (0.33, 0.27)]
        blade = np.add(curve([*corners, corners[0]]), [shift + float(rng.normal(0, 0.015)), 0]) * [sign, 1]
        total += 0.22 * view.fill(blade) + 0.30 * view.line(blade, 0.010)
        head = view.canvas()
        view.disc(head, (sign * 0.515, 0.175), (0.05, 0.05))
        shaft = view.canvas()
        view.stroke(shaft, np.array([(0.525, 0.19), (0.60, 0.75), (0.66, 1.3)]) * [sign, 1], 0.042, 1.0)
        total += 0.8 * level(np.maximum(head, shaft))
    return _blur(total, 0.0035 * view.unit)


def _soft_tissue(anatomy: Anatomy, view: View, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    body = view.fill(*anatomy.body)
    total = 0.60 * _thickness(body, 0.11 * view.unit) + 0.12 * body
    total += 0.20 * np.exp(-((x / 0.16) ** 2)) * body
    wall = view.canvas()
    for outline in anatomy.lungs.values():
        outer = outline[(np.abs(outline[:, 0]) > 0.13) & (np.arange(len(outline)) < 125)]
        view.stroke(wall, outer * [1.02, 1.0], 0.05, 1.0)
    total += 0.13 * _blur(level(wall), 0.012 * view.unit)  # ribs and muscle seen edge-on
    fold = np.abs(y - 0.42 - 0.05 * np.sin(x * 7)) / 0.3
    total += 0.05 * np.clip(1 - fold, 0, 1) * body
    if anatomy.female:
        size, low = float(rng.uniform(0.11, 0.18)), float(rng.uniform(0.58, 0.68))
        amount = float(rng.uniform(0.07, 0.20))
        for sign in (-1.0, 1.0):
            across, along = (x - sign * 0.235) / (size * 1.1), (y - low) / np.where(y > low, size * 0.85, size * 1.6)
            total += amount * np.sqrt(np.clip(1 - np.sqrt(across**2 + along**2), 0, 1))
    return total * (1 + 0.025 * noise(view.shape, 0.09 * view.unit, rng))


def _abdomen(anatomy: Anatomy, view: View, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    floor = min(bottom for _, bottom in anatomy.lung_box.values()) - 0.12
    total = 0.42 * np.clip((y - floor) / 0.12, 0, 1) * view.fill(*anatomy.body[:1])
    gas = view.canvas()
    low = anatomy.lung_box["left lung"][1]
    for _ in range(int(rng.integers(0, 4))):
        centre = rng.uniform(0.1, 0.27), low - rng.uniform(-0.10, 0.045)
        view.disc(gas, centre, (rng.uniform(0.02, 0.065), rng.uniform(0.012, 0.035)), rng.uniform(-25, 25))
    return total - rng.uniform(0.12, 0.35) * _blur(level(gas), 0.007 * view.unit)


def _wires(view: View, rng: np.random.Generator) -> np.ndarray:
    wires, pads = view.canvas(), view.canvas()
    for _ in range(int(rng.integers(1, 4))):
        pad = np.array([rng.uniform(-0.35, 0.35), rng.uniform(0.2, 0.75)])
        end = np.array([rng.choice([-0.6, 0.6]), rng.uniform(0.0, 0.9)])
        view.stroke(wires, curve([pad, pad + (end - pad) * 0.4 + rng.normal(0, 0.12, 2), end]), 0.003, 0.8)
        view.disc(pads, pad, (0.011, 0.011))
    return np.maximum(level(wires), 0.7 * level(pads))


def _marker(image: np.ndarray, rng: np.random.Generator) -> None:
    height, width = image.shape
    letter, at = ("R", rng.uniform(0.03, 0.08)) if rng.random() < 0.4 else ("L", rng.uniform(0.86, 0.93))
    size = height / 512 * rng.uniform(0.7, 1.2)
    place = (round(at * width), round(rng.uniform(0.08, 0.2) * height))
    ink = np.zeros(image.shape, np.uint8)
    cv2.putText(ink, letter, place, cv2.FONT_HERSHEY_DUPLEX, size, 250, max(1, round(size * 2)), cv2.LINE_AA)
    np.maximum(image, level(ink), out=image)


def _place(shape: tuple[int, int], rng: np.random.Generator) -> View:
    """Choose the patient's scale, rotation and shift at random, so that both lungs are completely in the image."""
    rows, columns = shape
    unit = min(max(rows, columns), columns / 0.90, rows / 0.90) * float(rng.uniform(0.89, 1.03))
    turn = float(np.clip(rng.normal(0, 1.3), -3.5, 3.5)) * np.pi / 180
    c, s = np.cos(turn) * unit, np.sin(turn) * unit
    middle = np.array([rng.normal(0, 0.012), 0.48 + rng.normal(0, 0.015)])
    matrix = np.array([[c, -s, 0.0], [s, c, 0.0]])
    matrix[:, 2] = np.array([columns / 2, rows / 2 if rows <= columns else 0.47 * rows]) - matrix[:, :2] @ middle
    return View(shape, matrix)


def _expose(absorption: np.ndarray, view: View, rng: np.random.Generator, ap: bool) -> np.ndarray:
    """Convert absorption to an image in 0..1: add scatter and photon noise, and apply the display curve."""
    scatter = _blur(absorption, 0.08 * view.unit)
    share = float(rng.uniform(0.10, 0.22) + (0.08 if ap else 0.0))
    blurred = (1 - share) * _blur(absorption, float(rng.uniform(0.5, 0.9)) * view.unit / 512) + share * scatter
    grain = rng.standard_normal(view.shape, dtype=np.float32)
    amount = float(rng.uniform(0.006, 0.020))
    blurred += amount * np.exp(0.5 * (blurred - 0.9)) * (0.6 * grain + 0.8 * cv2.GaussianBlur(grain, (0, 0), 0.8))
    contrast, centre = float(rng.uniform(2.4, 3.6)), float(rng.uniform(0.52, 0.86))
    displayed_image = 1.0 / (1.0 + np.exp(-contrast * (blurred - centre)))
    low = 1.0 / (1.0 + np.exp(contrast * (centre + 0.02)))
    high = float(np.quantile(displayed_image[::4, ::4], 0.995))
    return np.clip((displayed_image - low) / max(high - low, 0.2) * float(rng.uniform(0.85, 0.98)), 0.0, 1.0)


def draw_chest(
    rng: np.random.Generator, size: int | tuple[int, int] = 512, *, cardiomegaly: bool = False, ap: bool = False
) -> Chest:
    """Draw a frontal chest X-ray without lung lesions.

    ``size``: side of a square image or (rows, columns), with a ratio of at most 1.25. ``cardiomegaly``: whether the
    cardiothoracic ratio is above 0.54. ``ap``: a portable supine X-ray. The same state of ``rng`` gives the same image.
    """
    shape = (size, size) if isinstance(size, int) else size
    anatomy = draw_anatomy(rng, cardiomegaly=cardiomegaly, ap=ap)
    view = _place(shape, rng)
    x, y = view.grid()
    masks = organ_masks(anatomy, view)

    lungs = view.fill(*anatomy.lungs.values())
    air = _thickness(lungs, 0.085 * view.unit)
    heart = _blur(_thickness(view.fill(anatomy.heart), 0.06 * view.unit), 0.004 * view.unit)
    great = _blur(view.fill(anatomy.cardiomediastinum), 0.006 * view.unit)
    knob = np.exp(-((((x - anatomy.knob[0]) ** 2 + (y - anatomy.knob[1]) ** 2) / anatomy.knob[2] ** 2) ** 2))

    absorption = _soft_tissue(anatomy, view, x, y, rng) + _abdomen(anatomy, view, y, rng) * (1 - 0.9 * lungs)
    aeration = float(rng.uniform(0.50, 0.64) - (0.06 if ap else 0.0))
    aerated = 0.35 * _blur(lungs, 0.004 * view.unit) + 0.65 * air
    absorption -= aeration * aerated * (1 - np.maximum(0.80 * heart, 0.55 * great))
    absorption += np.maximum(0.21 * heart, 0.17 * great) + 0.10 * knob.astype(np.float32)
    trachea = view.line(curve([(0.0, -0.1), (-0.003, 0.15), (-0.008, 0.36)]), 0.030)
    absorption -= 0.12 * _blur(trachea, 0.006 * view.unit)
    amount = float(rng.uniform(0.11, 0.19))
    absorption += amount * _vessels(anatomy, view, rng) * (0.25 + 0.75 * lungs) * (1 - 0.5 * heart)
    amount = float(rng.uniform(0.10, 0.17))
    absorption += amount * _ribs(anatomy, view, rng) * np.clip(1.25 - 0.8 * great - 0.8 * heart, 0.25, 1)
    absorption += float(rng.uniform(0.10, 0.17)) * _spine(anatomy, view, y, rng)
    absorption += float(rng.uniform(0.10, 0.17)) * _shoulder_girdle(view, rng, ap)
    absorption += 0.012 * noise(shape, 0.02 * view.unit, rng) * lungs
    if ap and rng.random() < 0.6:
        absorption += float(rng.uniform(0.15, 0.4)) * _wires(view, rng)
    image = _expose(np.maximum(absorption, 0.0), view, rng, ap)
    if rng.random() < 0.8:
        _marker(image, rng)
    if rng.random() < 0.2:  # collimation
        edge = max(1, round(rng.uniform(0.005, 0.03) * shape[1]))
        image[:, :edge] *= 0.05
        image[:, -edge:] *= 0.05
    middle = float(view.pixels(np.array([[0.0, 0.45]]))[0, 0])
    return Chest(image.astype(np.float32), masks, middle, anatomy.ctr)
