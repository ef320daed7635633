"""Paint a lesion, or a structure that resembles a lesion, on a frontal chest X-ray. The formula ``image + (1 - image) *
density`` brightens dark lung more than bone, and its result stays in 0..1. The density is 0 outside the region, except
for a soft rim. All sizes are fractions of the region's size. We chose amplitudes and shapes by visual comparison."""

from collections.abc import Callable

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box

RIMS = {"opacity": 0.05, "consolidation": 0.04, "pneumonia": 0.05}
"""{lesion: SD of the blur at the edge of its region, as a fraction of the region's size}; 0.02 for other lesions."""
VISIBLE = 0.30  # fraction of the highest density from which a pixel belongs to the lesion's mask


def noise(shape: tuple[int, int], scale: float, rng: np.random.Generator, octaves: int = 3) -> np.ndarray:
    """Return smooth noise, float32 (H, W), with mean about 0 and SD about 1. ``scale``: size of the coarsest grain, px;
    each of the ``octaves`` adds a grain of half the size."""
    total = np.zeros(shape, np.float32)
    weight = 1.0
    for _ in range(octaves):
        cell = max(scale, 1.0)
        grid = rng.standard_normal((int(shape[0] / cell) + 3, int(shape[1] / cell) + 3), dtype=np.float32)
        total += weight * cv2.resize(grid, (shape[1], shape[0]), interpolation=cv2.INTER_CUBIC)
        scale, weight = scale / 2, weight * 0.6
    return total / max(float(total.std()), 1e-6)


def _blur(picture: np.ndarray, sigma: float) -> np.ndarray:
    if sigma > 4:  # the same blur on a quarter of the pixels
        small = cv2.resize(picture, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        small = _blur(small, sigma / 2)
        return cv2.resize(small, (picture.shape[1], picture.shape[0]), interpolation=cv2.INTER_LINEAR)
    return cv2.GaussianBlur(picture, (0, 0), max(sigma, 0.3))


def _step(value: np.ndarray, width: float) -> np.ndarray:
    t = np.clip(value / width + 0.5, 0.0, 1.0)
    return (t * t * (3.0 - 2.0 * t)).astype(np.float32)


def _grid(shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    return np.meshgrid(np.arange(shape[1], dtype=np.float32), np.arange(shape[0], dtype=np.float32))


def _stroke(canvas: np.ndarray, points: np.ndarray, thickness: float, value: float = 1.0) -> None:
    """Draw a polyline, points (N, 2), with smooth edges on a uint8 canvas, the only type that OpenCV antialiases."""
    pixels = [np.round(np.asarray(points) * 16).astype(np.int32)]
    cv2.polylines(canvas, pixels, False, round(255 * value), max(1, round(thickness)), cv2.LINE_AA, 4)


def _point_in(region: np.ndarray, rng: np.random.Generator, depth: float = 0.35) -> tuple[float, float]:
    """Return a random pixel (x, y) of the region, at least ``depth`` times the largest distance away from the edge."""
    distance = cv2.distanceTransform(region.astype(np.uint8), cv2.DIST_L2, 3)
    ys, xs = np.nonzero(distance >= depth * distance.max())
    at = int(rng.integers(len(xs)))
    return float(xs[at]), float(ys[at])


def _blob(shape, centre, radii, angle: float, soft: float, rng, ragged: float = 0.25) -> np.ndarray:
    """Return an ellipse with a ``ragged`` edge, float32 (H, W): 1 inside, falling to 0 over ``soft`` radii."""
    x, y = _grid(shape)
    x, y = x - centre[0], y - centre[1]
    c, s = np.cos(angle), np.sin(angle)
    r = np.sqrt(((c * x + s * y) / max(radii[0], 1.0)) ** 2 + ((c * y - s * x) / max(radii[1], 1.0)) ** 2)
    return _step(1.0 - r + ragged * noise(shape, min(radii), rng, 2), soft)


class _Side:
    """The part of the region in one lung, cropped. ``lateral``: direction of the chest wall along x, -1 or 1."""

    def __init__(self, region: np.ndarray, lateral: int, extent: float):
        self.region, self.lateral, self.extent = region, lateral, extent
        self.height, self.width = region.shape
        self.area = float(region.sum())
        self.reach = float(np.sqrt(self.area))  # side of the square with the same area

    def laterality(self) -> np.ndarray:
        """Return float32 (1, W): 0 at the medial edge of the crop, rising to 1 at the lateral edge."""
        t = np.linspace(0.0, 1.0, self.width, dtype=np.float32)[None]
        return t if self.lateral > 0 else 1.0 - t


def _large_blob(side: _Side, radius_range: tuple, soft_range: tuple, rng: np.random.Generator) -> np.ndarray:
    """Return a blob at a random place in the region. ``radius_range``: limits of its radius, as fractions of
    ``side.reach``; ``soft_range``: limits of the width of its edge, in radii."""
    radius = side.reach * side.extent * rng.uniform(*radius_range)
    radii, centre = (radius, radius * rng.uniform(0.6, 1.0)), _point_in(side.region, rng)
    return _blob(side.region.shape, centre, radii, rng.uniform(0, np.pi), rng.uniform(*soft_range), rng)


def _opacity(side: _Side, rng: np.random.Generator) -> np.ndarray:
    density = np.zeros(side.region.shape, np.float32)
    for _ in range(1 + int(rng.random() < 0.25)):
        density = np.maximum(density, _large_blob(side, (0.16, 0.38), (0.7, 1.3), rng) * rng.uniform(0.7, 1.0))
    return rng.uniform(0.17, 0.34) * density * (1.0 + 0.10 * noise(density.shape, side.reach / 5, rng))


def _bronchogram(side: _Side, rng: np.random.Generator) -> np.ndarray:
    """Return a drawing of air-filled bronchi that run outwards from the medial side, 1 on a bronchus, 0 elsewhere."""
    tubes = np.zeros(side.region.shape, np.uint8)
    thick = side.reach / 60
    for _ in range(int(rng.integers(3, 7))):
        start = np.array([side.width * (0.25 if side.lateral > 0 else 0.75), side.height * rng.uniform(0.2, 0.7)])
        angle = rng.uniform(-0.9, 0.9) + np.cumsum(rng.normal(0, 0.25, 8))
        steps = side.reach * 0.09 * np.stack([side.lateral * np.cos(angle), np.sin(angle)], axis=1)
        _stroke(tubes, np.concatenate([start[None], start + np.cumsum(steps, axis=0)]), thick)
    return _blur(tubes.astype(np.float32) / 255, max(0.5, thick * 0.5))


def _consolidation(side: _Side, rng: np.random.Generator) -> np.ndarray:
    blob = _large_blob(side, (0.28, 0.5), (0.4, 0.9), rng)
    texture = 1.0 + 0.08 * noise(blob.shape, side.reach / 6, rng) - rng.uniform(0.1, 0.3) * _bronchogram(side, rng)
    return rng.uniform(0.34, 0.54) * _blur(blob * texture, max(0.6, side.reach * 0.02))


def _pneumonia(side: _Side, rng: np.random.Generator) -> np.ndarray:
    shape = side.region.shape
    centre = _point_in(side.region, rng)
    spread = side.reach * side.extent * rng.uniform(0.14, 0.26)
    patchy = np.zeros(shape, np.float32)
    for _ in range(int(rng.integers(3, 8))):
        at = (centre[0] + rng.normal(0, spread), centre[1] + rng.normal(0, spread))
        radius = side.reach * side.extent * rng.uniform(0.08, 0.22)
        blob = _blob(shape, at, (radius, radius * rng.uniform(0.6, 1.0)), rng.uniform(0, np.pi), 1.0, rng)
        patchy = np.maximum(patchy, blob * rng.uniform(0.6, 1.0))
    patchy = 0.75 * patchy + 0.25 * _blur(patchy, spread / 2)
    return rng.uniform(0.24, 0.44) * patchy * np.clip(1.0 + 0.22 * noise(shape, side.reach / 7, rng), 0.3, 1.6)


def _bands(side: _Side, rng: np.random.Generator) -> np.ndarray:
    density = np.zeros(side.region.shape, np.float32)
    x, y = _grid(density.shape)
    for _ in range(int(rng.integers(1, 4))):
        cx, cy = _point_in(side.region, rng, 0.25)
        angle = rng.normal(0, 0.3)
        along = np.cos(angle) * (x - cx) + np.sin(angle) * (y - cy)
        across = np.cos(angle) * (y - cy) - np.sin(angle) * (x - cx)
        across = across + rng.normal(0, 0.3) * along**2 / side.reach
        thick = side.reach * rng.uniform(0.025, 0.055)
        length = side.reach * side.extent * rng.uniform(0.25, 0.5)
        band = np.exp(-0.5 * (across / thick) ** 2) * _step(1.0 - np.abs(along) / length, 0.6)
        density = np.maximum(density, band * rng.uniform(0.75, 1.0))
    return rng.uniform(0.22, 0.40) * density.astype(np.float32)


def _wedge(side: _Side, rng: np.random.Generator) -> np.ndarray:
    """Return the density of a collapsed lung base: a triangle along the mediastinum with a lateral apex."""
    _, y = _grid(side.region.shape)
    height = side.height * side.extent * rng.uniform(0.25, 0.5)
    top = height * np.clip(1.0 - side.laterality() / rng.uniform(0.7, 1.1), 0.0, 1.0)
    rise = top * (1.0 + 0.1 * noise((1, side.width), side.width / 3, rng))
    bottoms = side.height - np.argmax(side.region[::-1], axis=0)[side.region.any(axis=0)]
    wedge = _step((y - (np.quantile(bottoms, 0.3) - rise)) / side.reach, rng.uniform(0.06, 0.15)) * (top > 1.0)
    return rng.uniform(0.28, 0.48) * wedge * (1.0 + 0.08 * noise(wedge.shape, side.reach / 6, rng))


def _edema(side: _Side, rng: np.random.Generator) -> np.ndarray:
    shape = side.region.shape
    _, y = _grid(shape)
    u, v = side.laterality(), y / max(side.height, 1)
    hilum = rng.uniform(0.45, 0.6)
    perihilar = np.exp(-((u / rng.uniform(0.55, 0.9)) ** 2) - ((v - hilum) / rng.uniform(0.28, 0.42)) ** 2)
    haze = 0.65 * perihilar + rng.uniform(0.1, 0.3) * np.clip(v * 1.3 - 0.1, 0, 1)
    net = 1.0 - np.clip(np.abs(noise(shape, side.reach / 9, rng, 2)) * 2.0, 0, 1)
    lines = np.zeros(shape, np.uint8)
    for _ in range(int(rng.integers(6, 14))):  # short horizontal septal lines near the chest wall
        at = side.width * (0.86 if side.lateral > 0 else 0.14) + rng.normal(0, 0.05 * side.width)
        row, length = side.height * rng.uniform(0.5, 0.95), side.reach * rng.uniform(0.04, 0.1)
        ends = [(at - length / 2, row), (at + length / 2, row + rng.normal(0, 0.01) * side.reach)]
        _stroke(lines, ends, side.reach / 160)
    fluffy = np.clip(1.0 + 0.25 * noise(shape, side.reach / 4, rng), 0.3, 1.8)
    amplitude = rng.uniform(0.20, 0.36)
    septal_lines = 0.10 * (lines.astype(np.float32) / 255)
    return (amplitude * (haze * fluffy + 0.18 * net * haze) + septal_lines).astype(np.float32)


def _effusion(side: _Side, rng: np.random.Generator) -> np.ndarray:
    _, y = _grid(side.region.shape)
    columns = side.region.any(axis=0)
    bottom = np.where(columns, side.height - np.argmax(side.region[::-1], axis=0), 0).astype(np.float32)
    lowest, u = bottom.max(), side.laterality()
    level = np.exp(rng.uniform(np.log(0.14), np.log(0.6))) * min(side.height, 1.3 * side.width)
    rise = level * rng.uniform(0.35, 0.8) * np.clip((u - 0.3) / 0.7, 0, 1) ** 2.2
    surface = lowest - level - rise + 0.25 * level * (1.0 - u) * rng.random()
    fluid = _step((y - surface) / side.reach, rng.uniform(0.05, 0.14))
    deeper = np.clip((y - surface) / max(level, 1.0), 0.0, 1.0)
    return rng.uniform(0.40, 0.62) * fluid * (0.75 + 0.25 * deeper) * (1.0 + 0.02 * noise(y.shape, side.reach / 4, rng))


def _nodule(side: _Side, rng: np.random.Generator) -> np.ndarray:
    radius = max(1.5, side.reach * rng.uniform(0.025, 0.06))
    blob = _blob(side.region.shape, _point_in(side.region, rng, 0.2), (radius, radius), 0.0, 0.6, rng, 0.06)
    return rng.uniform(0.2, 0.4) * blob


def _scar(side: _Side, rng: np.random.Generator) -> np.ndarray:
    lines = np.zeros(side.region.shape, np.uint8)
    centre = np.array(_point_in(side.region, rng, 0.1))
    for _ in range(int(rng.integers(2, 5))):
        angle, length = rng.uniform(0, np.pi), side.reach * rng.uniform(0.08, 0.2)
        half = 0.5 * length * np.array([np.cos(angle), np.sin(angle)])
        _stroke(lines, [centre - half, centre + half], side.reach / 110)
    return rng.uniform(0.15, 0.3) * _blur(lines.astype(np.float32) / 255, max(0.6, side.reach / 220))


def _device(side: _Side, rng: np.random.Generator) -> np.ndarray:
    """Return the density of a tube or a lead: a long, thin, bright curve. A tube has two bright parallel edges."""
    t = np.linspace(0.0, 1.0, 40)
    start = np.array([side.width * rng.random(), 0.0])
    end = np.array([side.width * rng.random(), side.height * rng.uniform(0.4, 1.0)])
    bend = np.array([rng.normal(0, side.width * 0.4), rng.normal(0, side.height * 0.1)])
    curve = start + t[:, None] * (end - start) + np.sin(np.pi * t)[:, None] * bend
    canvas = np.zeros(side.region.shape, np.uint8)
    thick = side.reach * rng.uniform(0.008, 0.02)
    _stroke(canvas, curve, thick)
    if thick >= 3:
        _stroke(canvas, curve, thick - 2, 0.35)
    return rng.uniform(0.3, 0.65) * (canvas.astype(np.float32) / 255)


_SHAPES: dict[str, Callable[[_Side, np.random.Generator], np.ndarray]] = {
    "opacity": _opacity,
    "consolidation": _consolidation,
    "pneumonia": _pneumonia,
    "atelectasis": lambda side, rng: (_wedge if rng.random() < 0.4 else _bands)(side, rng),
    "edema": _edema,
    "effusion": _effusion,
    "nodule": _nodule,
    "scar": _scar,
    "device": _device,
}
PAINTABLE = tuple(_SHAPES)  # lesions that :func:`paint` accepts; cardiomegaly is a shape of the chest, not a lesion


def _split(region: np.ndarray, midline: float) -> list[tuple[slice, slice, int]]:
    """Split the region at the midline. Return (rows, columns, direction of the chest wall along x) of each side's crop,
    without a side whose area is less than a tenth of the other side's."""
    column = min(max(round(midline), 0), region.shape[1])
    crops = []
    for first, last, lateral in ((0, column, -1), (column, region.shape[1], 1)):
        x1, y1, x2, y2 = bounding_box(region[:, first:last])
        if y2 > y1:
            area = int(region[:, first:last].sum())
            crops.append((slice(y1, y2), slice(first + x1, first + x2), lateral, area))
    largest = max((area for *_, area in crops), default=0)
    return [(rows, columns, lateral) for rows, columns, lateral, area in crops if area >= 0.1 * largest]


def paint(
    image: np.ndarray,
    lesion: str,
    region: np.ndarray,
    rng: np.random.Generator,
    strength: float = 1.0,
    *,
    midline: float | None = None,
    extent: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Paint ``lesion`` into ``region``, bool (H, W), of an image, float32 (H, W) in 0..1. Return the painted image and
    the lesion's mask, bool (H, W). Edema is painted into both sides of the region, other lesions into one side, and
    effusion sometimes into both. ``strength`` multiplies the density, and ``extent`` the size. With ``extent`` 1, a
    lesion has a sixth to a half of the region's width. ``midline``: column that separates the patient's right and left.
    Raises ValueError for a lesion that is not in ``PAINTABLE``."""
    if lesion not in _SHAPES:
        raise ValueError(f"lesion must be one of {', '.join(PAINTABLE)}, not {lesion!r}")
    new, mask = np.array(image, np.float32), np.zeros(image.shape, bool)
    sides = _split(region, image.shape[1] / 2 if midline is None else midline)
    if not sides:
        return new, mask
    if lesion != "edema" and not (lesion == "effusion" and rng.random() < 0.35):
        sides = [sides[int(rng.integers(len(sides)))]]
    for rows, columns, lateral in sides:
        side = _Side(np.ascontiguousarray(region[rows, columns]), lateral, extent)
        if side.area < 16:
            continue
        density = np.clip(_SHAPES[lesion](side, rng), 0.0, None) * strength
        rim = max(0.6, side.reach * RIMS.get(lesion, 0.02))
        # The density decreases towards the edge of the region, and nearly all of it is inside.
        inside = _blur(side.region.astype(np.float32), rim)
        density = np.clip(density * np.clip(2.0 * inside - 0.5, 0.0, 1.0), 0.0, 0.9)
        new[rows, columns] += (1.0 - new[rows, columns]) * density
        top = float(np.quantile(density[side.region], 0.99))
        mask[rows, columns] |= side.region & (density >= max(VISIBLE * top, 1e-3))
    return np.clip(new, 0.0, 1.0), mask
