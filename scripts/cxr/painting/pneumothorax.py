"""Paint pneumothorax: air between chest wall and pleural line, without vessels and slightly darker than the lung."""

import cv2
import numpy as np

from cxr.painting.absorption import GRAIN, REACH, crop_around
from cxr.painting.chest import Chest, PaintedImage, PaintRequest, Place, Window, smoothstep, soft_step, window_mask
from cxr.painting.lesions import noise

SMOOTH = 5.0  # SD of the blur that makes the distance to the chest wall smooth, px at 512 x 512
NEAR, COARSE = 6.0, 10.0  # reach of the filter that removes vessels; SD of the blur that defines detail, px
EVENED_DIFFERENCE = 1.5  # brightness step that this filter smooths, as a multiple of the median detail of the lungs
ENDING, ABOVE = 0.14, 1.8  # fraction of the box over which changes fade at its sides; factor of this width at its top
APEX_SHARE = 0.35  # a box that begins in this upper fraction of the lung gets air at the apex, other boxes a pocket
MAX_POCKET_DEPTH = 0.6  # maximum depth of a pocket, as a fraction of its height
CUT_ROWS = 3  # a lung that reaches these top rows is cut off by the image's edge
EDGE = 2.5  # width of the transition from lung to air, px at 512 x 512
VISIBLE = 0.15  # fraction of the air's full effect from which a pixel belongs to the lesion's mask
MIN_DEPTH = 6.0  # minimum depth of the air where it is deepest, px
DENSE, BRIGHT = 0.85, 0.95  # brightness that the denser lung and the pleural line approach
DRAWN_RANGES = ("delta", "tail", "share", "line", "width", "denser", "lost")  # parameters sampled for each place


def remove_vessels(chest: Chest, mask: np.ndarray) -> np.ndarray:
    """Return the image, float32 (H, W), without vessels and grain where ``mask``, bool (H, W), is True. There, a filter
    smooths small differences of brightness and preserves large ones, such as the edges of ribs."""
    image = chest.image
    detail = np.abs(cv2.GaussianBlur(image, (0, 0), 1) - cv2.GaussianBlur(image, (0, 0), COARSE))
    alike = EVENED_DIFFERENCE * max(float(np.median(detail[chest.lungs])), 1 / 512)
    grey = cv2.medianBlur(np.rint(255 * np.clip(image, 0, 1)).astype(np.uint8), 5).astype(np.float32) / 255
    at = crop_around(mask)
    # The filter's result depends on the range of its input. So a row with the range of the whole image is appended.
    part = cv2.copyMakeBorder(grey, REACH, REACH, REACH, REACH, cv2.BORDER_REFLECT_101)
    part = part[at[0].start : at[0].stop + 2 * REACH, at[1].start : at[1].stop + 2 * REACH]
    ends = np.full_like(part[:1], grey.min())
    ends[0, 0] = grey.max()
    even = cv2.bilateralFilter(np.vstack([part, ends]), -1, alike, NEAR)[:-1]
    even = cv2.GaussianBlur(even, (0, 0), GRAIN)[REACH:-REACH, REACH:-REACH]
    grey[at] = even[: grey[at].shape[0], : grey[at].shape[1]]
    return grey


def wall_distance(chest: Chest, side: str) -> np.ndarray:
    """Return each pixel's smoothed distance from the chest wall beside and above a lung, px, negative in the wall."""
    lung = chest.lung(side) if side == "left" else chest.lung(side)[:, ::-1]
    edge = np.maximum.accumulate(lung[:, ::-1], axis=1)[:, ::-1].sum(axis=1)
    inner = np.arange(lung.shape[1])[None] < np.maximum.accumulate(edge)[:, None]
    margin = 64
    extended = np.pad(inner, margin, mode="edge")
    if not lung[:CUT_ROWS].any():  # a lung that the image's edge cuts off has no wall there
        extended[:margin] = False
    inside, outside = (cv2.distanceTransform(area.astype(np.uint8), cv2.DIST_L2, 5) for area in (extended, ~extended))
    far = cv2.GaussianBlur(inside - outside, (0, 0), SMOOTH)[margin:-margin, margin:-margin]
    return far if side == "left" else np.ascontiguousarray(far[:, ::-1])


def air_depth(window: Window, tail: float, from_apex: bool) -> np.ndarray:
    """Return the relative thickness of the air in each row, float32 (h, 1), at most 1. If ``from_apex``, the air is
    thickest at the apex and thins out downwards to about ``tail``. Otherwise, it has the shape of a lens."""
    _, y1, _, y2 = window.box
    t = np.clip((np.arange(window.shape[0], dtype=np.float32)[:, None] + 0.5 - y1) / max(1, y2 - y1), 0, 1)
    if from_apex:
        return (tail + (1 - tail) * (1 - t) ** 1.2) * np.sqrt(np.clip((1 - t) / 0.3, 0, 1))
    lens = np.sqrt(np.clip(t / 0.45, 0, 1)) * np.sqrt(np.clip((1 - t) / (0.3 + 0.4 * tail), 0, 1))
    return lens / max(float(lens.max()), 1e-6)


def fade_weights(window: Window) -> np.ndarray:
    """Return weights, float32 (h, w), by which changes of the image are multiplied: 1 in the lung inside the place's
    box, 0 outside, with a ramp at the sides of the box."""
    x1, y1, x2, y2 = window.place_box
    y, x = np.mgrid[: window.shape[0], : window.shape[1]].astype(np.float32) + 0.5
    wide, tall = (max(4.0, ENDING * size) for size in (x2 - x1, y2 - y1))
    ramp = np.minimum(np.minimum(x - x1, x2 - x) / wide, np.minimum((y - y1) / (ABOVE * tall), (y2 - y) / tall))
    return (window.rim_weights() * smoothstep(np.clip(ramp, 0, 1)) * window.inside).astype(np.float32)


def pleural_line(
    chest: Chest, place: Place, window: Window, request: PaintRequest, parameters: dict, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, float]:
    """Return (distance of each pixel from the pleural line, thickness of the air in each row, maximum thickness), all
    in px. The distance is positive in the air and negative in the lung. The line is parallel to the chest wall. If the
    box does not reach the wall, the air begins at the side of the box."""
    lung = chest.lung(place.side)
    rows, columns = (np.flatnonzero(lung.any(axis=axis)) for axis in (1, 0))
    far = wall_distance(chest, place.side)[window.at]
    x1, y1, x2, y2 = window.box
    upper = slice(y1, y1 + max(3, (y2 - y1) // 2))
    distances = far[upper, x1:x2][window.lung[upper, x1:x2]]
    # distances from the chest wall at which the lung within the box begins and ends
    near, away = np.quantile(distances, [0.03, 0.97]).tolist() if distances.size else (4.0, 0.0)
    near = max(0.0, near - 4)
    least, most = (share * (columns[-1] - columns[0] + 1) for share in request.ranges["depth"])
    most = float(np.clip(parameters["share"] * (away - near), max(MIN_DEPTH, least), max(MIN_DEPTH, most)))
    from_apex = window.rows.start + window.box[1] - rows[0] < APEX_SHARE * (rows[-1] - rows[0])
    if not from_apex:
        most = max(MIN_DEPTH, min(most, MAX_POCKET_DEPTH * window.size[1]))
    deep = most * air_depth(window, parameters["tail"], from_apex)
    beyond = deep - (far - near)
    beyond = beyond + min(1.5, 0.04 * most) * noise(window.shape, max(60.0, window.size[1] / 2), random, 1)
    slope = cv2.GaussianBlur(np.hypot(*np.gradient(beyond)), (0, 0), 2)
    return (beyond / np.clip(slope, 0.5, 3)).astype(np.float32), deep, most


def paint(chest: Chest, request: PaintRequest, random: np.random.Generator) -> PaintedImage:
    """Paint a pneumothorax into each place. ``request.ranges`` must have ``depth``, ``grain`` and the names
    :data:`DRAWN_RANGES`."""
    image, lesion, parts = chest.image.copy(), np.zeros(chest.image.shape, bool), []
    windows = [Window(chest, place) for place in request.places]
    mask = window_mask(chest, (window for window in windows if not window.empty))
    bare = remove_vessels(chest, mask) if mask.any() else chest.image
    for place, window in zip(request.places, windows, strict=True):
        parameters = {name: request.draw(name, random) for name in DRAWN_RANGES}
        if window.empty:
            continue
        beyond, deep, most = pleural_line(chest, place, window, request, parameters, random)
        fade = fade_weights(window)
        air = soft_step(beyond, EDGE)
        before = window.image
        smooth = cv2.GaussianBlur(before, (0, 0), GRAIN)
        grain_loss = (1 - request.ranges["grain"]) * (before - smooth)
        detail_loss = parameters["lost"] * (smooth - bare[window.at]) + grain_loss
        painted = (before - air * fade * detail_loss) * (1 - parameters["delta"] * air * fade)
        inner = (1 - air) * np.exp(-np.clip(-beyond, 0, None) / max(6.0, 0.6 * most))
        painted = painted + parameters["denser"] * inner * fade * np.clip(DENSE - painted, 0, None)
        along = np.clip(1 + 0.3 * noise(window.shape, 25.0, random, 2), 0.35, 1.6)
        line = np.exp(-((beyond / parameters["width"]) ** 2)) * soft_step(deep - 4, 4)
        painted = painted + parameters["line"] * along * line * fade * np.clip(BRIGHT - painted, 0, None)
        image[window.at] = np.where(fade > 0, painted, image[window.at])
        lesion[window.at] |= (air * fade >= VISIBLE) & window.inside
        parts.append(parameters | {"side": place.side, "depth": most})
    return PaintedImage(np.clip(image, 0, 1).astype(np.float32), lesion, {"parts": parts})
