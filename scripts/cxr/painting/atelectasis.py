"""Paint atelectasis: plates or a wedge of airless lung, and loss of volume, which pulls diaphragm and vessels up."""

import cv2
import numpy as np

from cxr.painting.absorption import add_absorption, water_brightness
from cxr.painting.chest import Chest, PaintedImage, PaintRequest, Window, smoothstep, soft_step
from cxr.painting.lesions import noise

VISIBLE = 0.12  # fraction of the highest density from which a pixel belongs to the lesion's mask
FADE = 0.16  # distance over which the lesion fades out at a side of the box that cuts the lung, in half box sizes
BELOW = 1.6  # distance below the diaphragm over which the upward shift fades out, as a multiple of the maximum shift
# The lesion's outline is a superellipse. BEYOND: outward shift at sides where the lung ends, in half box sizes.
BEYOND, OVAL_EXPONENT = 0.9, 3.0
PLATE_SPACING = 0.07  # minimum height of the box for each additional plate, as a fraction of the lung's height
HIDDEN = 0.6  # fraction of the lesion's density that is lost behind the heart
MAX_SHIFT = 0.12  # maximum shift, as a fraction of the box's height
BANDS = ("linear", "streaky", "subsegmental", "discoid", "plate")  # words of a prompt that mean plates


def draw_plates(
    window: Window, request: PaintRequest, tall: float, random: np.random.Generator
) -> tuple[np.ndarray, int]:
    """Return the density of plate-shaped atelectases across the box, float32 (h, w), at most 1, and the number of
    plates. ``tall``: the lung's height, px."""
    x1, y1, _, y2 = window.box
    wide, high = window.size
    y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32) + 0.5
    count = max(1, min(request.draw_count("number", random), 1 + int(high / (PLATE_SPACING * tall))))
    density = np.zeros(window.shape, np.float32)
    tilt, bend = random.normal(0.05, 0.10) * window.lateral, random.uniform(-0.10, 0.10)
    places = np.linspace(0.24, 0.84, count + (count == 1))[:count] + random.uniform(-0.2, 0.2, count) / count
    for number, place in enumerate(places):
        thick = request.draw("thick", random) * tall
        long = random.uniform(0.75, 1.0) if number in (0, count - 1) else random.uniform(0.35, 0.8)
        start = random.uniform(0, 1 - long)
        t = ((x - x1) / wide - start) / long
        plate_tilt = tilt + random.normal(0, 0.04)
        middle = y1 + place * high + (plate_tilt * (t - 0.5) + bend * (4 * (t - 0.5) ** 2 - 0.5)) * long * wide * 0.6
        middle = middle + 0.15 * thick * noise(window.shape, max(24.0, wide / 2), random, 1)
        middle = np.clip(middle, y1 + 0.1 * high, y2 - 0.06 * high)
        taper = np.sqrt(np.clip(np.minimum(t, 1 - t) / 0.3, 0, 1))
        half = np.maximum(0.8, 0.5 * thick * (0.35 + 0.65 * taper))
        away = (y - middle) / half
        sharp, soft = (1.0, 2.0) if random.uniform() < 0.5 else (2.0, 1.0)
        profile = np.exp(-(np.where(away > 0, away / soft, away / sharp) ** 2))
        density = np.maximum(density, profile * taper * random.uniform(0.65, 1.0))
    return density.astype(np.float32), count


def draw_wedge(window: Window, soft: float, random: np.random.Generator) -> np.ndarray:
    """Return the density of a wedge, float32 (h, w), at most 1. The wedge is dense at the base and fades upwards and
    laterally. ``soft``: additional width of its uneven upper edge, in half box heights."""
    u, v = window.box_coordinates()
    medial = -window.lateral * u
    upper = 0.45 * (1 - medial) * random.uniform(0.2, 0.8) - 0.75
    upper = upper + 0.14 * noise(window.shape, window.reach / 2.5, random, 2)
    rising = soft_step(v - upper, 0.25 + soft)
    lateral = 0.45 + 0.55 * smoothstep(np.clip((medial + 1.0) / 1.4, 0, 1))
    return (rising * lateral * (0.55 + 0.45 * smoothstep(np.clip((v + 1) / 1.6, 0, 1)))).astype(np.float32)


def draw_upper_lobe(window: Window, random: np.random.Generator) -> np.ndarray:
    """Return the density, float32 (h, w), of a collapsed upper lobe: at most 1, with a sharp, concave lower edge."""
    u, v = window.box_coordinates()
    lateral = np.clip((window.lateral * u + 1) / 2, 0, 1)
    fissure = 0.85 - random.uniform(0.3, 0.7) * lateral - random.uniform(0.3, 0.6) * lateral * (1 - lateral)
    dense = 0.6 + 0.4 * np.clip((1 - v) / 2, 0, 1) * (1 - 0.4 * lateral)
    return (soft_step(fissure - v, 0.1) * dense).astype(np.float32)


def draw_streaks(window: Window, random: np.random.Generator) -> np.ndarray:
    """Return a texture of crowded vessels that fan out from the hilum, float32 (h, w), with a mean of about 0."""
    x1, y1, x2, y2 = window.box
    y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32) + 0.5
    hilum = (x1 if window.lateral > 0 else x2), y1 - 0.8 * (y2 - y1)
    angle = np.arctan2(y - hilum[1], window.lateral * (x - hilum[0]))
    fan = np.sin(angle * random.uniform(26, 38) + 1.6 * noise(window.shape, window.reach / 3, random, 2))
    return cv2.GaussianBlur((np.clip(fan, 0, 1) ** 2).astype(np.float32), (0, 0), 0.9) - 0.25


def upward_shift(window: Window, shift: float) -> np.ndarray:
    """Return the distance by which each pixel moves upwards, px, float32 (h, w). The distance is ``shift`` at the
    diaphragm. It falls to 0 at the sides of the box and a short way below the lung, slowly enough to avoid folds."""
    x1, y1, x2, y2 = window.place_box
    y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32) + 0.5
    lung = window.lung
    bottom = np.where(lung.any(axis=0), lung.shape[0] - lung[::-1].argmax(axis=0), 0).astype(np.float32)
    lung_columns = np.flatnonzero(bottom)
    if not lung_columns.size:
        return np.zeros(window.shape, np.float32)
    line = np.interp(np.arange(len(bottom)), lung_columns, bottom[lung_columns]).astype(np.float32)
    above, reach = cv2.GaussianBlur(line[None], (0, 0), 6) - y, BELOW * shift + 4
    rise = smoothstep(np.clip(1 - above / max(6 * shift, 0.8 * (y2 - y1)), 0, 1))
    rise = rise * smoothstep(np.clip((reach + above) / reach, 0, 1))
    across = smoothstep(np.clip(np.minimum(x - x1, x2 - x) / (0.48 * (x2 - x1)), 0, 1))
    room = np.minimum(across, np.clip((y2 - y - 1) / max(2.5 * shift, 1), 0, 1))
    top = smoothstep(np.clip((y - y1) / (0.35 * (y2 - y1)), 0, 1))
    return (shift * rise * room * top).astype(np.float32)


def paint(chest: Chest, request: PaintRequest, random: np.random.Generator) -> PaintedImage:
    """Paint an atelectasis into each place of the request."""
    image, lesion, parts = chest.image.copy(), np.zeros(chest.image.shape, bool), []
    chance, white = random.uniform(), water_brightness(chest.image, chest.heart)
    has_plates = chance < request.ranges["bands"] and not request.mentions("patchy", "lobe")
    form = "plates" if request.mentions(*BANDS) or has_plates else "wedge"
    form = "collapse" if request.mentions("collapse") else form
    flat, lost = request.draw("flat", random), request.draw("lost", random)
    total = np.zeros(chest.image.shape, np.float32)
    for place in request.places:
        window = Window(chest, place)
        parameters = {name: request.draw(name, random) for name in ("delta", "soft", "haze")}
        parameters["loss"] = request.draw("collapse" if form == "collapse" else "loss", random)
        if window.empty:
            continue
        tall = float(np.flatnonzero(chest.lung(place.side).any(axis=1)).size)
        lobe = form == "collapse" and request.mentions("upper lobe")
        density = draw_upper_lobe(window, random) if lobe else draw_wedge(window, parameters["soft"], random)
        u, v = window.box_coordinates(BEYOND)  # coordinates of the lesion's uneven outline
        r = (np.abs(u) ** OVAL_EXPONENT + np.abs(v) ** OVAL_EXPONENT) ** (1 / OVAL_EXPONENT)
        edge = 1.05 - r + 0.08 * noise(window.shape, window.reach / 3, random, 2)
        density = density * smoothstep(np.clip(edge / 0.4, 0, 1)).astype(np.float32)
        if form == "plates":
            lines, parameters["number"] = draw_plates(window, request, tall, random)
            density = np.maximum(lines, parameters["haze"] * density)
        else:
            density = density * np.clip(1 + request.ranges["texture"] * draw_streaks(window, random), 0, None)
        heart = cv2.GaussianBlur(window.heart.astype(np.float32), (0, 0), 4)
        density = np.clip(parameters["delta"] * density * window.fade_weights(FADE) * (1 - HIDDEN * heart), 0, 0.85)
        up = upward_shift(window, min(parameters["loss"] * tall, MAX_SHIFT * window.size[1]))
        y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32)
        shifted = cv2.remap(image[window.at], x, y + up, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
        image[window.at] = np.where(up > 1e-3, shifted, image[window.at])
        total[window.at] = np.maximum(total[window.at], density)
        most = float(np.quantile(density[window.lung & window.inside], 0.98))
        lesion[window.at] |= (density >= VISIBLE * most) & window.inside & (density > 0)
        parts.append(parameters | {"side": place.side, "form": form})
    image = np.where(total > 0, add_absorption(image, total, white, flat, lost), image)
    return PaintedImage(np.clip(image, 0, 1).astype(np.float32), lesion, {"parts": parts, "flat": flat, "lost": lost})
