"""Paint pleural effusion: fluid as bright as nearby tissue fills the lung's base and climbs along the chest wall."""

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box
from cxr.painting.absorption import GRAIN, water_brightness
from cxr.painting.chest import Chest, PaintedImage, PaintRequest, Place, Window, smoothstep, soft_step
from cxr.painting.lesions import noise

# The sizes of bands and filters are pixels at an image size of 512 x 512.
RING = 26  # width of the band of tissue around the lung's base that defines the fluid's brightness, px
DARKEST = 0.15  # fraction of this tissue that is ignored as too dark: gas in the stomach and air outside the body
TISSUE_BLUR = 16.0  # SD of the blur that extends the tissue's brightness into the lung, px
MAX_BELOW = 16.0  # distance below the lung's lower border that is painted, because the mask may end too high, px
MIN_TISSUE = 0.01  # weight of the tissue's median brightness, which only matters far from any tissue
COVER = 5  # minimum height of the fluid level above the dome of the diaphragm, px
THIN = 10.0  # minimum height over which the fluid thins out at its surface, px
HIDDEN = 0.85  # fraction of the fluid's density that is lost behind the heart
NARROW = 9  # side of the median filter that removes the vessels, px
BASE = 14.0  # SD of the blur that separates ribs from slow changes of brightness, px
DRAWN_RANGES = ("delta", "soft", "rise", "reach", "kept")  # parameters that are sampled for each place
VISIBLE = 0.25  # fraction of the highest density from which a pixel belongs to the lesion's mask


def tissue_brightness(chest: Chest, place: Place) -> np.ndarray:
    """Return the brightness of soft tissue around the lung's base, extrapolated into the lung, float32 (H, W)."""
    lung = chest.lung(place.side)
    near = cv2.dilate(lung.astype(np.uint8), np.ones((2 * RING + 1, 2 * RING + 1))) > 0
    y, x = np.indices(lung.shape)
    x1, _, x2, _ = bounding_box(lung)
    wall = RING // 2
    ring = near & ~chest.lungs & (x >= x1 - wall) & (x < x2 + wall) & (y >= place.box[1])
    ring &= ~(cv2.dilate(lung.astype(np.uint8), np.ones((9, 9))) > 0)
    ring |= chest.heart & ~chest.lungs & near & (y >= place.box[1])
    if not ring.any():
        return np.full(lung.shape, water_brightness(chest.image, chest.heart), np.float32)
    smooth = cv2.GaussianBlur(chest.image, (0, 0), 3.0)
    ring &= smooth >= np.quantile(smooth[ring], DARKEST)
    middle = float(np.median(smooth[ring]))
    weight = ring.astype(np.float32)
    sums = [cv2.GaussianBlur(layer, (0, 0), TISSUE_BLUR) for layer in (smooth * weight, weight)]
    return ((sums[0] + MIN_TISSUE * middle) / (sums[1] + MIN_TISSUE)).astype(np.float32)


def depth_below_surface(
    window: Window, rise: float, reach: float, least: float, random: np.random.Generator
) -> np.ndarray:
    """Return the depth of each pixel below the fluid's surface, px, float32 (h, w), negative above the surface. The
    surface is level except near the chest wall, where it rises to the top of the box over about ``reach`` px. ``rise``:
    height of this rise divided by the height of the fluid below. ``least``: lowest row that the level part may have."""
    x1, y1, x2, y2 = window.box
    y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32) + 0.5
    height = y2 - y1
    drop = min(height * rise / (1 + rise), max(least - y1, 0.12 * height))
    rows = np.flatnonzero(window.lung.any(axis=1))  # find the lung's lateral border, smooth and without gaps
    edge = np.array([np.flatnonzero(window.lung[row])[0 if window.lateral < 0 else -1] for row in rows], np.float32)
    border = np.interp(np.arange(len(window.lung)), rows, edge).astype(np.float32)
    outer = np.minimum.accumulate(border) if window.lateral < 0 else np.maximum.accumulate(border)
    wall = cv2.GaussianBlur(outer.reshape(-1, 1), (1, 31), 6.0).ravel()
    away = np.clip(window.lateral * (wall[:, None] - x), 0, None)
    middle = np.clip(window.lateral * (x - (x1 if window.lateral > 0 else x2)), 0, None)
    climb = drop * np.exp(-((away / reach) ** 1.3)) + 0.05 * drop * np.exp(-middle / (0.7 * reach))
    wave = 0.012 * height * noise(window.shape, max(20.0, (x2 - x1) / 2), random, 1)
    return y - (y1 + drop) + climb + wave


def fluid_region(window: Window) -> np.ndarray:
    """Return weights for the fluid, float32 (h, w): 1 in the lung, 0 outside the place. They fall to 0 within 4 px
    beside the lung and within :data:`MAX_BELOW` px below the lung."""
    lower = np.maximum.accumulate(window.lung, axis=0)
    side_distance = cv2.distanceTransform((~lower).astype(np.uint8), cv2.DIST_L2, 5)
    under = cv2.distanceTransform((~window.lung).astype(np.uint8), cv2.DIST_L2, 5)
    rows = np.arange(window.shape[0], dtype=np.float32)[:, None] + 0.5
    _, top, _, bottom = window.place_box
    ending = smoothstep(np.clip((bottom - rows) / max(4.0, 0.1 * (bottom - top)), 0, 1))
    reached = np.clip(1 - side_distance / 4, 0, 1) * np.clip(1 - under / np.where(lower, MAX_BELOW, 4), 0, 1)
    return (window.inside * reached * np.where(window.lung, 1, ending)).astype(np.float32)


def rib_contrast(image: np.ndarray, lung: np.ndarray) -> np.ndarray:
    """Return the contrast of ribs in a lung, float32 (h, w), without vessels and without slow changes of brightness."""
    inside = lung.astype(np.float32)
    grey = cv2.medianBlur(np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8), NARROW).astype(np.float32) / 255
    bone = cv2.GaussianBlur(grey, (0, 0), 1.5)
    flat = cv2.GaussianBlur(bone * inside, (0, 0), BASE) / np.maximum(cv2.GaussianBlur(inside, (0, 0), BASE), 0.02)
    deep = cv2.GaussianBlur(cv2.erode(inside, np.ones((13, 13))), (0, 0), 3)
    return (bone - flat) * np.clip(deep, 0, 1)


def draw_fluid(window: Window, request: PaintRequest, parameters: dict, random: np.random.Generator) -> np.ndarray:
    """Return the density of the fluid, float32 (h, w), as if no heart hid it. ``parameters``: {name: sampled value}."""
    tall, (x1, _, x2, bottom) = window.size[1], window.box
    lower_columns = window.lung[:, x1 + (x2 - x1) // 6 : x2 - (x2 - x1) // 6].T
    # the top of the diaphragm: the highest row of the lung's lower border in the middle two thirds of the box
    dome = float(min((np.flatnonzero(column)[-1] for column in lower_columns if column.any()), default=bottom))
    reach = max(6.0, parameters["reach"] * window.size[0])
    deep = depth_below_surface(window, parameters["rise"], reach, dome - COVER, random)
    width = max(THIN, parameters["soft"] * tall)
    fuller = smoothstep(np.clip(deep / max(1.0, 0.6 * tall), 0, 1))
    share = parameters["delta"] + (request.ranges["base"] - parameters["delta"]) * fuller
    return soft_step(deep - width / 3, width) * share * fluid_region(window)


def paint(chest: Chest, request: PaintRequest, random: np.random.Generator) -> PaintedImage:
    """Paint an effusion into each place. ``request.ranges`` must have ``base`` and the names :data:`DRAWN_RANGES`."""
    image, lesion, parts = chest.image.copy(), np.zeros(chest.image.shape, bool), []
    for place in request.places:
        window = Window(chest, place)
        parameters = {name: request.draw(name, random) for name in DRAWN_RANGES}
        if window.empty:
            continue
        before = window.image
        fluid = draw_fluid(window, request, parameters, random)
        density = fluid * (1 - HIDDEN * cv2.GaussianBlur(window.heart.astype(np.float32), (0, 0), 4))
        smooth = cv2.GaussianBlur(before, (0, 0), GRAIN)
        ribs = parameters["kept"] * rib_contrast(before, window.lung)
        goal = np.maximum(tissue_brightness(chest, place)[window.at], smooth) + ribs
        image[window.at] = np.where(density > 0, before + density * (goal - smooth), image[window.at])
        most = float(np.quantile(fluid[window.lung & window.inside], 0.98))
        lesion[window.at] |= (fluid >= VISIBLE * most) & (fluid > 0) & window.inside
        parts.append(parameters | {"side": place.side})
    return PaintedImage(np.clip(image, 0, 1).astype(np.float32), lesion, {"parts": parts})
