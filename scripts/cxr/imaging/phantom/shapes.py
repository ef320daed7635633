"""The geometry of a synthetic chest: random outlines of its organs, within the range of adults.

Body coordinates begin at the patient's midline and the top of the image. x points to the image's right and y down, so
the patient's right is at negative x. The unit is the image's nominal width. We chose the proportions without data.
"""

from dataclasses import dataclass

import cv2
import numpy as np

from cxr.base.vocabulary import SIDES, ZONE_LABELS, ZONE_LEVELS

ZONE_STEPS = (0.0, 0.17, 0.42, 0.68, 1.0)  # borders of apical, upper, mid and basal zone, fractions of lung height


def curve(points, samples: int = 24) -> np.ndarray:
    """Return a smooth open curve (N, 2) through control points (Catmull-Rom), with ``samples`` points between two."""
    points = np.asarray(points, np.float64)
    padded = np.concatenate([2 * points[:1] - points[1:2], points, 2 * points[-1:] - points[-2:-1]])
    t = np.linspace(0, 1, samples, endpoint=False)[:, None]
    pieces = []
    for before, start, end, after in zip(padded, padded[1:], padded[2:], padded[3:], strict=False):
        square, cube = 2 * before - 5 * start + 4 * end - after, 3 * start - before - 3 * end + after
        pieces.append(0.5 * (2 * start + (end - before) * t + square * t**2 + cube * t**3))
    return np.concatenate([*pieces, points[-1:]])


def level(canvas: np.ndarray) -> np.ndarray:
    """Convert a uint8 drawing to float32 in 0..1."""
    return canvas.astype(np.float32) / 255


@dataclass(frozen=True)
class View:
    """A map from body coordinates to the pixels of an image of ``shape`` (rows, columns)."""

    shape: tuple[int, int]
    matrix: np.ndarray  # float64 (2, 3): body (x, y) to pixel coordinates

    @property
    def unit(self) -> float:
        """Pixels per unit of body coordinates. One unit is the nominal width of the image."""
        return float(np.sqrt(abs(np.linalg.det(self.matrix[:, :2]))))

    def pixels(self, points: np.ndarray) -> np.ndarray:
        """Map body points (N, 2) to pixels (N, 2)."""
        return np.asarray(points) @ self.matrix[:, :2].T + self.matrix[:, 2]

    def grid(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the body coordinates x, y of every pixel, float32 (H, W)."""
        inverse = cv2.invertAffineTransform(self.matrix)
        column, row = np.meshgrid(np.arange(self.shape[1]), np.arange(self.shape[0]))
        x = inverse[0, 0] * column + inverse[0, 1] * row + inverse[0, 2]
        y = inverse[1, 0] * column + inverse[1, 1] * row + inverse[1, 2]
        return x.astype(np.float32), y.astype(np.float32)

    def canvas(self) -> np.ndarray:
        """Return an empty uint8 image to draw on; :func:`level` converts it to float32 in 0..1."""
        return np.zeros(self.shape, np.uint8)

    def disc(self, canvas: np.ndarray, centre, axes, angle: float = 0.0) -> None:
        """Fill an ellipse around a body point. ``axes``: half axes in body units; ``angle``: degrees."""
        x, y = self.pixels(np.array([centre]))[0]
        half = [max(1, round(axis * self.unit)) for axis in axes]
        cv2.ellipse(canvas, (round(x), round(y)), half, angle, 0, 360, 255, -1, cv2.LINE_AA)

    def fill(self, *polygons: np.ndarray) -> np.ndarray:
        """Draw the union of body polygons, filled and anti-aliased, float32 (H, W) in 0..1."""
        canvas = self.canvas()
        for polygon in polygons:
            cv2.fillPoly(canvas, [np.round(self.pixels(polygon) * 16).astype(np.int32)], 255, cv2.LINE_AA, 4)
        return level(canvas)

    def stroke(self, canvas: np.ndarray, points: np.ndarray, width: float, value: float) -> None:
        """Draw an anti-aliased body curve on a uint8 ``canvas``. ``width``: body units; ``value``: in 0..1."""
        thickness = max(1, round(width * self.unit))
        value = value * min(1.0, max(0.15, width * self.unit))  # fainter if thinner than a pixel
        pixels = np.round(self.pixels(points) * 16).astype(np.int32)
        cv2.polylines(canvas, [pixels], False, round(255 * value), thickness, cv2.LINE_AA, 4)

    def line(self, points: np.ndarray, width: float) -> np.ndarray:
        """Draw a body curve, float32 (H, W) in 0..1. ``width``: body units."""
        canvas = self.canvas()
        self.stroke(canvas, points, width, 1.0)
        return level(canvas)


@dataclass
class Anatomy:
    """Organ outlines, polygons (N, 2) in body coordinates, with hila, aortic knob, cardiothoracic ratio and sex."""

    lungs: dict[str, np.ndarray]
    heart: np.ndarray
    cardiomediastinum: np.ndarray
    body: list[np.ndarray]
    hilum: dict[str, tuple[float, float]]
    spine: np.ndarray
    knob: tuple[float, float, float]
    ctr: float
    female: bool
    lung_box: dict[str, tuple[float, float]]  # top and bottom y of each lung


def _lung(sign: float, rng: np.random.Generator, volume: float, broad: float, wall: float, dome: float) -> np.ndarray:
    """Draw a lung's outline: wall, diaphragm and medial border, which meet at corners. ``sign``: -1 for the right lung;
    ``dome`` + ``volume``: y of the diaphragm; ``wall`` * ``broad``: distance of the wall from the midline."""
    j = lambda spread: float(rng.normal(0, spread))  # noqa: E731
    low = dome + volume
    apex = np.array([0.140 + j(0.008), 0.125 + j(0.01)])
    angle = np.array([wall * broad, low + 0.105 + j(0.012)])
    medial = 0.038 + abs(j(0.010))
    cardiophrenic = np.array([medial + 0.012, low + 0.03 + j(0.008)])
    lateral = curve([
        apex, (0.190 * broad, apex[1] + 0.014), (0.250 * broad + j(0.006), 0.205 + j(0.006)),
        (0.328 * broad + j(0.006), 0.340), (0.378 * broad + j(0.005), 0.500), (wall * broad * 1.005, low - 0.03),
        angle,
    ])  # fmt: skip
    height = 0.02 + abs(j(0.012))
    diaphragm = curve([
        angle, (wall * broad - 0.045, low + 0.045 - height * 0.3),
        (0.255 * broad + j(0.01), low + 0.005 - height * 0.4), (0.160 * broad + j(0.01), low - height * 0.5),
        (0.095, low + 0.008), cardiophrenic,
    ])  # fmt: skip
    inner = curve([
        cardiophrenic, (medial, low - 0.15), (medial, 0.38), (medial + 0.012, 0.25), (0.075, 0.165), (0.103, 0.133),
        apex,
    ])  # fmt: skip
    return np.concatenate([lateral[:-1], diaphragm[:-1], inner[:-1]]) * np.array([sign, 1.0])


def _heart(left_extent: float, right_extent: float, base: float, top: float, rng: np.random.Generator) -> np.ndarray:
    apex_y = base - 0.045 + float(rng.normal(0, 0.008))
    half = [
        (-0.030, top), (-right_extent * 0.72, top + 0.07), (-right_extent, top + 0.17),
        (-right_extent * 0.86, base - 0.045), (-right_extent * 0.40, base - 0.004), (0.06, base + 0.018),
        (left_extent * 0.72, base + 0.020), (left_extent * 0.98, apex_y + 0.022), (left_extent, apex_y - 0.015),
        (left_extent * 0.86, apex_y - 0.085), (left_extent * 0.55, top + 0.075), (0.062, top + 0.012),
        (0.02, top - 0.012),
    ]  # fmt: skip
    return curve([*half, half[0]])


def _body(rng: np.random.Generator, broad: float, ap: bool) -> list[np.ndarray]:
    side = 0.475 * broad + float(rng.normal(0, 0.012))
    neck, shoulder = 0.128 + float(rng.normal(0, 0.018)), 0.055 + float(rng.normal(0, 0.025))
    drop = 0.14 if ap else 0.07
    half = curve([
        (neck, -0.30), (neck + 0.003, -0.03), (neck + 0.055, shoulder - 0.025), (0.34, shoulder + 0.02),
        (0.50, shoulder + drop * 0.6), (0.62, shoulder + drop + 0.1), (0.60, 0.36), (side + 0.02, 0.40), (side, 0.52),
        (side - 0.008, 0.75), (side + 0.012, 1.35),
    ])  # fmt: skip
    torso = np.concatenate([half, half[::-1] * np.array([-1.0, 1.0])])
    swing = float(rng.uniform(0.06, 0.22)) if ap else float(rng.uniform(0.25, 0.6))
    arm = np.array([
        (0.50, 0.16), (0.60, 0.20), (0.64 + swing, 1.35), (0.50 + swing, 1.35), (0.475 + swing * 0.3, 0.5),
        (0.45, 0.36),
    ])  # fmt: skip
    return [torso, arm, arm * np.array([-1.0, 1.0])]


def draw_anatomy(rng: np.random.Generator, *, cardiomegaly: bool, ap: bool) -> Anatomy:
    """Draw the anatomy of an adult. The cardiothoracic ratio is above 0.54 with ``cardiomegaly``, else below 0.46 (PA)
    or 0.48 (AP). ``ap``: a supine portable X-ray with a higher diaphragm, a larger heart and the arms down."""
    broad = float(rng.uniform(0.93, 1.05))
    volume = float(rng.uniform(-0.09, 0.0) if ap else rng.uniform(-0.03, 0.035))
    dome = 0.665
    lungs = {
        "right lung": _lung(-1.0, rng, volume, broad, 0.395 + float(rng.normal(0, 0.008)), dome),
        "left lung": _lung(1.0, rng, volume, broad, 0.390 + float(rng.normal(0, 0.008)), dome + rng.uniform(0.0, 0.04)),
    }
    breadth = float(lungs["left lung"][:, 0].max() - lungs["right lung"][:, 0].min())
    ctr = float(rng.uniform(0.55, 0.66) if cardiomegaly else rng.uniform(0.38, 0.475 if ap else 0.45))
    share = float(rng.uniform(0.27, 0.35))
    base = dome + volume + 0.045
    top = 0.385 + volume * 0.4 - (0.03 if cardiomegaly else 0.0)
    heart = _heart(ctr * breadth * (1 - share), ctr * breadth * share, base, top, rng)
    heart[:, 0] *= ctr * breadth / np.ptp(heart[:, 0])
    knob = (0.058 + float(rng.normal(0, 0.006)), 0.285 + volume * 0.3, 0.034 + abs(float(rng.normal(0, 0.006))))
    flare = float(rng.uniform(0.9, 1.2)) * (1.15 if ap else 1.0)
    vessels = curve([
        (-0.046 * flare, 0.13), (-0.052 * flare, 0.25), (-0.060 * flare, 0.34), (-0.075, top + 0.06),
        (-0.05, base - 0.02), (0.06, base), (0.085, top + 0.09), (0.072 * flare, 0.35),
        (knob[0] + knob[2] * 0.95, knob[1] + 0.01), (knob[0] + knob[2] * 0.35, knob[1] - knob[2]),
        (0.050 * flare, 0.13),
    ])  # fmt: skip
    offset = float(rng.normal(0, 0.004))
    middle, low = (offset + rng.normal(0, 0.006), 0.4), (offset + rng.normal(0, 0.01), 0.8)
    spine = curve([(offset, -0.1), middle, low, (offset, 1.4)])
    hilum = {
        "right": (-0.088 - float(rng.uniform(0, 0.02)), 0.415 + volume * 0.4),
        "left": (0.092 + float(rng.uniform(0, 0.02)), 0.395 + volume * 0.4),
    }
    body, female = _body(rng, broad, ap), bool(rng.random() < 0.48)
    lung_box = {side: (float(outline[:, 1].min()), float(outline[:, 1].max())) for side, outline in lungs.items()}
    return Anatomy(lungs, heart, vessels, body, hilum, spine, knob, ctr, female, lung_box)


def organ_masks(anatomy: Anatomy, view: View) -> dict[str, np.ndarray]:
    """Return {label: bool (H, W)} of both lungs (also behind the heart), heart, cardiomediastinum (from aortic knob to
    diaphragm) and the other zone labels. Zones are fractions of the lung's height. The borders of lobes are where the
    fissures usually are in a frontal view. Lobes overlap, as in a real projection."""
    x, y = view.grid()
    lungs = {name: view.fill(outline) > 0.5 for name, outline in anatomy.lungs.items()}
    heart = view.fill(anatomy.heart) > 0.5
    mediastinum = (view.fill(anatomy.cardiomediastinum) > 0.5) & (y > anatomy.knob[1] - anatomy.knob[2])
    masks = {**lungs, "heart": heart, "cardiomediastinum": heart | mediastinum}
    for side in SIDES:
        lung = lungs[f"{side} lung"]
        top, bottom = anatomy.lung_box[f"{side} lung"]
        depth = np.clip((y - top) / (bottom - top), 0.0, 1.0)
        for zone, first, last in zip(ZONE_LEVELS, ZONE_STEPS, ZONE_STEPS[1:], strict=False):
            masks[f"{side} {zone}"] = lung & (depth >= first) & (depth < last if last < 1 else True)
        lateral = np.abs(x) / 0.4
        upper = depth < (0.50 + 0.05 * lateral if side == "right" else 0.80 - 0.18 * lateral)
        masks[f"lung lower lobe {side}"] = lung & (depth > 0.36 + 0.22 * lateral)
        masks[f"lung upper lobe {side}"] = lung & upper
        if side == "right":
            masks["lung middle lobe right"] = lung & ~upper & (depth < 0.95 - 0.25 * lateral)
    return {name: masks[name] for name in ("right lung", "left lung", "heart", "cardiomediastinum", *ZONE_LABELS[2:])}
