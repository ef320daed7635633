"""Paint cardiomegaly: a smooth warp along the rows widens the heart. Spine and chest walls do not move."""

import cv2
import numpy as np
from scipy.interpolate import PchipInterpolator

from cxr.geometry.boxes import bounding_box
from cxr.painting.absorption import brighten, extract_vessels, water_brightness
from cxr.painting.chest import Chest, PaintedImage, PaintRequest, smoothstep

SPINE = 0.05  # half the width of the fixed strip in the middle of the chest, as a fraction of the thorax width
MIN_LUNG = 0.35  # minimum fraction of its width that a lung keeps next to the heart
BELOW = 0.35  # distance below the heart over which the warp fades out, as a fraction of the heart's height
SMOOTH = 8.0  # SD of the blur that smooths borders from row to row, px at 512 x 512
EVEN = 5.0  # SD of the blur that smooths the warp across rows, px at 512 x 512
THICKER = 0.45  # density added inside the heart per unit of stretching, because a wider heart is also deeper
FADED = 1.2  # fraction of narrow structures (lung in front of the heart's border) that fades per unit of stretching
MIN_MOVE = 1e-3  # minimum shift that is applied, px; pixels with a smaller shift are unchanged
GAP = 4.0  # minimum distance between two knots of the warp, px


def _row_ends(mask: np.ndarray, last: bool) -> np.ndarray:
    """Return the column where a mask begins, or ends if ``last``, in each row, float64 (H,), also in empty rows."""
    rows = np.flatnonzero(mask.any(axis=1))
    ends = mask.shape[1] - mask[rows, ::-1].argmax(axis=1) if last else mask[rows].argmax(axis=1)
    return np.interp(np.arange(len(mask)), rows, ends)


def row_borders(chest: Chest) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return four arrays, float32 (H,), with the column of a border in each row: right chest wall, right heart border,
    left heart border, left chest wall. Heart borders go straight down below their outermost points."""
    first, last = _row_ends(chest.heart, False), _row_ends(chest.heart, True)
    at, to = int(first.argmin()), int(last.argmax())
    first[at:], last[to:] = first[at], last[to]
    wall, end = _row_ends(chest.right, False), _row_ends(chest.left, True)
    low, high = (np.flatnonzero(lung.any(axis=1))[-1] for lung in (chest.right, chest.left))
    wall[low:], end[high:] = wall.min(), end.max()
    columns = (border.astype(np.float32).reshape(-1, 1) for border in (wall, first, last, end))
    return tuple(cv2.GaussianBlur(column, (1, 0), SMOOTH, sigmaY=SMOOTH).ravel() for column in columns)


def source_columns_of(chest: Chest, ratio: float) -> np.ndarray:
    """Return the column from which the warp takes each pixel, float32 (H, W), increasing along each row. The warp makes
    the heart about ``ratio`` times as wide as the thorax."""
    x1, y1, x2, y2 = bounding_box(chest.heart)
    outer, limit = bounding_box(chest.right)[0], bounding_box(chest.left)[2]
    # the heart's middle is fixed, and its width becomes ``ratio`` of the thorax width
    centre, half = (x1 + x2) / 2, ratio * (limit - outer) / 2
    to1 = max(centre - half, outer + MIN_LUNG * (x1 - outer))
    to2 = min(centre + half, limit - MIN_LUNG * (limit - x2))
    wall, first, last, end = row_borders(chest)
    height, width = chest.image.shape
    middle, strip = (outer + limit) / 2, SPINE * (limit - outer)
    columns = np.arange(width) + 0.5
    source_columns = np.repeat(columns[None], height, axis=0)
    least = 0.25 * (x2 - x1)
    y = np.arange(height)
    fading = smoothstep(np.clip((y2 + BELOW * (y2 - y1) - y) / (BELOW * (y2 - y1)), 0, 1))
    fading = fading * smoothstep(np.clip((y - y1 + 0.25 * (y2 - y1)) / (0.35 * (y2 - y1)), 0, 1))
    first_shift = (x1 - to1) * np.clip(1 - (first - x1) / max(middle - x1, least), 0, 1) * fading
    last_shift = (to2 - x2) * np.clip(1 - (x2 - last) / max(x2 - middle, least), 0, 1) * fading
    rows = np.flatnonzero((np.abs(first_shift) > 0.01) | (np.abs(last_shift) > 0.01))
    for row in rows:  # walls and spine are fixed, and the heart's borders move
        x1, x2 = first[row], last[row]
        left_edge, right_edge, centre = min(wall[row], x1 - GAP), max(end[row], x2 + GAP), (x1 + x2) / 2
        to1 = x1 - min(first_shift[row], (1 - MIN_LUNG) * (x1 - left_edge))
        to2 = x2 + min(last_shift[row], (1 - MIN_LUNG) * (right_edge - x2))
        low = max(min(max(middle - strip, x1 + GAP), centre - 1), x1 + 0.5)
        high = min(max(min(middle + strip, x2 - GAP), centre + 1), x2 - 0.5)
        inside = (columns > left_edge) & (columns < right_edge)
        warp = PchipInterpolator(
            (left_edge, to1, low, high, to2, right_edge), (left_edge, x1, low, high, x2, right_edge)
        )
        source_columns[row, inside] = warp(columns[inside])
    # The mean of increasing rows is increasing, so the blur preserves the order of the columns.
    smooth_shift = cv2.GaussianBlur(source_columns - columns, (1, 0), EVEN, sigmaY=EVEN)
    return (columns + smooth_shift - 0.5).astype(np.float32)


def warp_rows(picture: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Warp an image, float32 (H, W): each pixel comes from the column ``at``, float32 (H, W), of its row."""
    rows, columns = np.indices(picture.shape, np.float32)
    warped = cv2.remap(picture, at, rows, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return np.where(np.abs(at - columns) > MIN_MOVE, warped, picture)


def _widen_heart(chest: Chest, goal: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the image with a heart of the cardiothoracic ratio ``goal``, float32 (H, W), and the heart's mask."""
    at = source_columns_of(chest, goal)
    lesion, warped = warp_rows(chest.heart.astype(np.float32), at) >= 0.5, warp_rows(chest.image, at)
    # where the heart is stretched, it becomes denser, and narrow structures become fainter
    stretched = np.clip(1 - np.gradient(at, axis=1), 0, 1).astype(np.float32)
    soft = np.clip(cv2.GaussianBlur(lesion.astype(np.float32), (0, 0), 4) * 1.5 - 0.5, 0, 1)
    weight = soft * cv2.GaussianBlur(stretched, (0, 0), 3)
    faded = warped - np.clip(FADED * weight, 0, 1) * extract_vessels(warped, weight > 0)
    painted = brighten(faded, THICKER * weight, water_brightness(chest.image, chest.heart))
    painted = np.where(np.abs(at - np.arange(at.shape[1])) > MIN_MOVE, painted, warped)
    return np.clip(painted, 0, 1).astype(np.float32), lesion


def paint(chest: Chest, request: PaintRequest, random: np.random.Generator) -> PaintedImage:
    """Widen the heart to the cardiothoracic ratio ``request.ratio``. If ``request.measure`` is given, measure the ratio
    in the result and correct the width once."""
    if request.ratio is None or not (chest.heart.any() and chest.right.any() and chest.left.any()):
        return PaintedImage(chest.image, np.zeros(chest.image.shape, bool), {})
    goal, parameters = request.ratio, {"ratio": request.ratio}
    widened, lesion = _widen_heart(chest, goal)
    if request.measure is not None:
        parameters["measured"] = reached = float(request.measure(widened))
        if np.isfinite(reached):
            goal = float(np.clip(2 * goal - reached, 0.5 * goal, 1.0))
            widened, lesion = _widen_heart(chest, goal)
    return PaintedImage(widened, lesion, parameters | {"goal": goal})
