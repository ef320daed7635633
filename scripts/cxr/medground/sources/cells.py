"""The source ``cells``: synthetic microscopy images with exact instance masks. It needs no files."""

from collections.abc import Iterator
from functools import partial

import cv2
import numpy as np

from cxr.base.seeds import stable_hash
from cxr.medground.sources.image import Image, ImageReader

SIDE = 256
SPLIT_ENDS = {"train": 600, "validate": 701, "test": 1000}
"""{split: limit}. An image is in the first split whose limit exceeds the hash of the image's id modulo 1,000."""
KINDS = {"nucleus": (6.0, 17.0), "rod": (11.0, 24.0)}  # {class: smallest and largest major half axis, px}


def read_cells(count: int, seed: int) -> Iterator[tuple[str, ImageReader]]:
    """Yield (image id, function that draws the image) for ``count`` synthetic images."""
    image_ids = (f"cells{number:04d}" for number in range(count))
    return ((image_id, partial(draw_cells, image_id, seed)) for image_id in image_ids)


def draw_cells(image_id: str, seed: int) -> Image:
    """Draw an image with up to 14 cells on a noisy background. Some cells touch, and the image's edge cuts some."""
    rng = np.random.default_rng(stable_hash("cells", seed, image_id))
    ground = rng.uniform(70, 150)
    picture = cv2.GaussianBlur(rng.normal(ground, 9.0, (SIDE, SIDE)), (0, 0), 1.2)
    picture += 4 * (rng.normal(0, 1, (SIDE, SIDE)))
    instances = np.zeros((SIDE, SIDE), np.uint16)
    masks = {name: np.zeros((SIDE, SIDE), bool) for name in KINDS}
    for _ in range(int(rng.integers(3, 15))):
        name = "rod" if rng.random() < 0.35 else "nucleus"
        body = _draw_cell(name, instances, rng)
        if body is None:
            continue
        instances[body] = instances.max() + 1
        masks[name] |= body
        level = ground + rng.choice([-1, 1]) * rng.uniform(25, 60)
        picture[body] = rng.normal(level, rng.choice([2.0, 5.0, 16.0]), int(body.sum()))
    grey = np.clip(np.round(picture), 0, 255).astype(np.uint8)
    place = stable_hash("split", image_id) % 1000
    split = next(split for split, end in SPLIT_ENDS.items() if place < end)
    return Image(
        image_id, image_id, split, np.repeat(grey[..., None], 3, axis=2), masks, instances,
        domain="nuclei", licence="drawn by this project",
    )  # fmt: skip


def _draw_cell(name: str, taken: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """Return the pixels of a new cell, bool (SIDE, SIDE), or None if no free place is found. ``taken`` is above 0 on
    other cells, which the new cell may touch but not overlap."""
    for _ in range(20):
        long = rng.uniform(*KINDS[name]) * (1.8 if rng.random() < 0.15 else 1.0)
        thin = long * (rng.uniform(0.22, 0.38) if name == "rod" else rng.choice([0.55, 0.72, 0.85, 1.0]))
        centre = rng.uniform(4, SIDE - 4, 2)
        plane, axes = np.zeros(taken.shape, np.uint8), (max(2, round(long)), max(2, round(thin)))
        middle = tuple(np.round(centre).astype(int).tolist())
        cv2.ellipse(plane, middle, axes, float(rng.uniform(0, 180)), 0, 360, 1, -1)
        body = plane > 0
        near = body if rng.random() < 0.2 else cv2.dilate(plane, np.ones((5, 5), np.uint8)) > 0
        if not (taken[near] > 0).any() and body.sum() >= 20:
            return body
    return None
