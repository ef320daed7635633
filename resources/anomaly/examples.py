"""Training examples of the anomaly net: healthy chests with painted lesions, and the brightness that the lesions add.

Only a few dozen healthy X-rays are available. So they are bent, mixed, mirrored, overlaid with shadows that are no
lesions, and shown with other grey curves. We chose all amounts by comparing examples with real X-rays.
"""

from typing import NamedTuple

import cv2
import numpy as np

from cxr.imaging.anomaly.lite import MARGIN, SIDE, crop_to_window, fit_window, make_lung_view
from cxr.painting.lesions import noise, paint

STORED, STORED_MARGIN = 224, 0.25  # pixels and margin of the healthy chests kept in memory
FOCAL = ("opacity", "opacity", "consolidation", "pneumonia", "pneumonia", "atelectasis")
HEALTHY, FOCAL_ONE_LUNG, FOCAL_BOTH, EDEMA, EFFUSION = 0.22, 0.50, 0.66, 0.76, 0.86  # cumulative; the rest is haze
OUTSIDE = 0.15  # weight of a pixel outside the lungs, where nothing must be found


class Chest(NamedTuple):
    """A chest cropped around the lungs: image float32 (H, W) in 0..1; right and left lung bool (2, H, W).

    ``lesion``: bool (H, W), the marked lesion; None for a healthy X-ray, or if only the label of the X-ray is known.
    """

    image: np.ndarray
    lungs: np.ndarray
    lesion: np.ndarray | None = None


class Example(NamedTuple):
    """The net's input (image, lungs), and its targets (excess, weight) at half the resolution."""

    image: np.ndarray
    lungs: np.ndarray
    excess: np.ndarray
    weight: np.ndarray


def stored(image: np.ndarray, lungs: np.ndarray, lesion: np.ndarray | None = None) -> Chest:
    """Crop a frame, uint8 (H, W), its lungs, bool (2, H, W), and lesion, bool (H, W), to the size kept in memory."""
    affine = fit_window(lungs.any(axis=0), STORED, STORED_MARGIN)
    masks = lungs if lesion is None else np.concatenate([lungs, lesion[None]])
    image, masks = crop_to_window(image, masks, affine, STORED)
    return Chest(image.astype(np.float32) / 255, masks[:2], None if lesion is None else masks[2])


def _blur(picture: np.ndarray, sigma: float) -> np.ndarray:
    return cv2.GaussianBlur(picture, (0, 0), sigma)


def _grid() -> tuple[np.ndarray, np.ndarray]:
    return np.meshgrid(np.arange(SIDE, dtype=np.float32), np.arange(SIDE, dtype=np.float32))


def bent(chest: Chest, random: np.random.Generator) -> Chest:
    """Crop the net's window out of a chest, with a random shift, scale, rotation, shear and slight warp."""
    affine = fit_window(chest.lungs.any(axis=0), SIDE, MARGIN)
    turn, shear = random.normal(0, 0.05), random.normal(0, 0.03)
    scale = np.diag(affine[:, :2].diagonal() * random.uniform(0.92, 1.12, 2))
    scale[0, 1] = shear
    matrix = scale @ np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    middle = np.full(2, SIDE / 2)
    centre = affine[:, :2] @ middle + affine[:, 2] + random.normal(0, 0.025, 2) * affine[:, :2].diagonal() * SIDE
    offset = centre - matrix @ middle
    x, y = _grid()
    bend = random.uniform(0, 0.012) * SIDE
    x = x + bend * noise(x.shape, SIDE / 3, random, 1)
    y = y + bend * noise(y.shape, SIDE / 3, random, 1)
    at = [(row[0] * x + row[1] * y + shift).astype(np.float32) for row, shift in zip(matrix, offset, strict=True)]
    image = cv2.remap(chest.image, *at, cv2.INTER_LINEAR)
    lungs = [cv2.remap(lung.astype(np.uint8), *at, cv2.INTER_NEAREST) > 0 for lung in chest.lungs]
    lesion = None if chest.lesion is None else cv2.remap(chest.lesion.astype(np.uint8), *at, cv2.INTER_NEAREST) > 0
    return Chest(image, np.stack(lungs), lesion)


def mixed(chest: Chest, other: Chest, random: np.random.Generator) -> Chest:
    """Blend two healthy chests, or replace the fine structure of ``chest`` by that of ``other``."""
    if random.random() < 0.5:
        share = random.uniform(0.5, 0.9)
        return Chest(share * chest.image + (1 - share) * other.image, chest.lungs)
    sigma = random.uniform(3, 7)
    fine = other.image - _blur(other.image, sigma)
    return Chest(np.clip(_blur(chest.image, sigma) + fine, 0, 1), chest.lungs)


def mirrored(chest: Chest) -> Chest:
    """Return the mirror image of a chest, in which right and left lung are swapped."""
    lesion = None if chest.lesion is None else np.ascontiguousarray(chest.lesion[:, ::-1])
    return Chest(np.ascontiguousarray(chest.image[:, ::-1]), np.ascontiguousarray(chest.lungs[::-1, :, ::-1]), lesion)


def _breasts(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    x, y = (plane / SIDE for plane in _grid())
    apart, height = random.uniform(0.2, 0.34), random.uniform(0.65, 0.95)
    wide, tall, edge = random.uniform(0.13, 0.24), random.uniform(0.12, 0.25), random.uniform(4, 18)
    shadow = np.zeros_like(image)
    for side in (-1, 1):
        radius = np.sqrt(((x - 0.5 - side * apart) / wide) ** 2 + ((y - height) / tall) ** 2)
        radius = radius + 0.1 * noise(image.shape, 40, random, 1)
        shadow = np.maximum(shadow, 1 / (1 + np.exp(-np.clip((1 - radius) * edge, -30, 30))))
    return 1 - (1 - image) * (1 - random.uniform(0.04, 0.2) * shadow)


def disturbed(image: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Add random disturbances that are no lesions: breast shadows, devices, scars, uneven exposure and scatter."""
    if random.random() < 0.35:
        image = _breasts(image, random)
    if random.random() < 0.3:
        what = ("device", "scar")[int(random.integers(2))]
        image = paint(image, what, np.ones(image.shape, bool), random, random.uniform(0.4, 1.0))[0]
    if random.random() < 0.5:
        x, y = (plane / SIDE - 0.5 for plane in _grid())
        along, down = random.normal(0, 0.10, 2)
        image = image * (1 + along * x + down * y)
    if random.random() < 0.3:
        veil = random.uniform(0, 0.25)
        image = veil + (1 - veil) * image
    return np.clip(image, 0, 1).astype(np.float32)


def _focal(image: np.ndarray, region: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Paint a focal lesion, sharp or hazy. It is more often in the lower half of the lungs than in the upper."""
    name = FOCAL[int(random.integers(len(FOCAL)))]
    rows = np.flatnonzero(region.any(axis=1))
    for _ in range(3):
        new, mask = paint(image, name, region, random, random.uniform(0.35, 1.25), midline=SIDE / 2)
        if not mask.any():
            return new
        depth = (np.nonzero(mask)[0].mean() - rows[0]) / max(float(np.ptp(rows)), 1.0)
        if random.random() < np.clip(0.15 + 1.3 * (depth - 0.2), 0.15, 1.0):
            break
    added = new - image
    if random.random() < 0.75:
        added = _blur(added, random.uniform(0.5, 9.0))
    return image + added * np.float32(random.uniform(1.0, 1.5))


def _haze(image: np.ndarray, lungs: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Add a broad veil over one or both lungs, which is mostly denser towards the base."""
    _, y = _grid()
    density = np.zeros_like(image)
    for side in (0, 1) if random.random() < 0.55 else (int(random.integers(2)),):
        rows = np.flatnonzero(lungs[side].any(axis=1))
        if not rows.size:
            continue
        depth = (y - rows[0]) / max(float(np.ptp(rows)), 1.0)
        if random.random() < 0.75:
            slope = (depth - random.uniform(0, 0.8)) / random.uniform(0.15, 0.5) * 4
            profile = 1 / (1 + np.exp(-np.clip(slope, -30, 30)))
        else:
            profile = np.exp(-(((depth - random.uniform(0.3, 0.8)) / random.uniform(0.2, 0.5)) ** 2))
        cloudy = np.clip(1 + 0.3 * noise(image.shape, random.uniform(10, 40), random), 0.2, 1.8)
        soft = _blur(lungs[side].astype(np.float32), random.uniform(1, 4))
        density = np.maximum(density, random.uniform(0.10, 0.42) * profile * cloudy * soft)
    return 1 - (1 - image) * (1 - np.clip(density, 0, 0.85))


def sick(image: np.ndarray, lungs: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Paint no lesion, or one or more lesions of a random type."""
    both, draw = lungs.any(axis=0), random.random()
    if draw < HEALTHY:
        return image
    if draw < FOCAL_ONE_LUNG:
        for _ in range(1 + int(random.random() < 0.35)):
            image = _focal(image, both, random)
    elif draw < FOCAL_BOTH:
        for lung in lungs:
            if lung.any():
                image = _focal(image, lung, random)
    elif draw < EFFUSION:
        name = "edema" if draw < EDEMA else "effusion"
        image = paint(image, name, both, random, random.uniform(0.35, 1.25), midline=SIDE / 2)[0]
    else:
        image = _haze(image, lungs, random)
    return _haze(image, lungs, random) if random.random() < 0.12 else image


def _tone(random: np.random.Generator):
    """Return a random monotone grey curve, as a function of an image."""
    gamma, bend = np.exp(random.normal(0, 0.28)), 0.6 * min(max(random.normal(0, 0.8), 0.0), 1.0)

    def curve(picture: np.ndarray) -> np.ndarray:
        grey = np.clip(picture, 0, 1) ** gamma
        return ((1 - bend) * grey + bend * grey * grey * (3 - 2 * grey)).astype(np.float32)

    return curve


def _shown_lungs(lungs: np.ndarray, excess: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Return lungs as a net may segment them: slightly too wide or too narrow, and sometimes without dense parts."""
    if random.random() < 0.5:
        kernel = np.ones((int(random.integers(1, 4)),) * 2, np.uint8)
        change = cv2.erode if random.random() < 0.5 else cv2.dilate
        lungs = np.stack([change(lung.astype(np.uint8), kernel) > 0 for lung in lungs])
    return lungs & ~(_blur(excess, 2) > random.uniform(0.15, 0.35)) if random.random() < 0.4 else lungs


def _half(picture: np.ndarray) -> np.ndarray:
    return cv2.resize(picture.astype(np.float32), (SIDE // 2, SIDE // 2), interpolation=cv2.INTER_AREA)


def example(pool: list[Chest], random: np.random.Generator) -> Example:
    """Draw an example: a healthy chest of the pool with painted lesions."""
    chest = bent(pool[int(random.integers(len(pool)))], random)
    if random.random() < 0.35:
        chest = mixed(chest, bent(pool[int(random.integers(len(pool)))], random), random)
    if random.random() < 0.35:
        chest = mirrored(chest)
    healthy = disturbed(chest.image, random)
    tone = _tone(random)
    before, after = tone(healthy), tone(sick(healthy, chest.lungs, random))
    if random.random() < 0.3:
        sigma = random.uniform(0.3, 1.0)
        before, after = _blur(before, sigma), _blur(after, sigma)
    grain = random.normal(0, random.uniform(0, 0.02), after.shape).astype(np.float32)
    lung_view = make_lung_view((after + grain) * 255, chest.lungs)
    excess = (after - before) * np.float32(255 / lung_view.span)
    weight = np.clip(1.5 * _blur(chest.lungs.any(axis=0).astype(np.float32), 2), 0, 1)
    lungs = _shown_lungs(chest.lungs, excess, random).astype(np.float32)
    return Example(lung_view.image, lungs, _half(excess), OUTSIDE + (1 - OUTSIDE) * _half(weight))


def real(chest: Chest, random: np.random.Generator) -> Example:
    """Draw an example of a real X-ray. The lesion's place may be known, but not its brightness.

    The third member is the fraction of each target pixel that is in the lesion, the fourth member shows the lungs.
    """
    chest = bent(chest, random)
    if random.random() < 0.5:
        chest = mirrored(chest)
    image = disturbed(chest.image, random) if random.random() < 0.5 else chest.image
    image = _tone(random)(image)
    if random.random() < 0.3:
        image = _blur(image, random.uniform(0.3, 1.0))
    grain = random.normal(0, random.uniform(0, 0.02), image.shape).astype(np.float32)
    seen = make_lung_view((image + grain) * 255, chest.lungs)
    lesion = np.zeros(image.shape, bool) if chest.lesion is None else chest.lesion
    inside = np.clip(1.5 * _blur(chest.lungs.any(axis=0).astype(np.float32), 2), 0, 1)
    return Example(seen.image, seen.lungs, _half(lesion), _half(inside))
