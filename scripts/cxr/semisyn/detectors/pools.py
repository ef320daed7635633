"""Pools (sets of training images of one origin), and batches mixed from them. The image at a position of a batch
depends only on the seed, the step and the position. The pools ``synthetic``, ``unedited`` and ``shuffled`` are in
the same order, so where a run uses an edited image, a control run uses the unedited source of this image."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import TypeVar

import cv2
import numpy as np

from cxr.base.seeds import stable_hash
from cxr.detection.augmentation import augment_image
from cxr.detection.grid import Grid
from cxr.detection.training import Batch

POOLS = ("real", "synthetic", "shuffled", "unedited")
"""Names of the pools, in the order in which :func:`draw_image` adds up their fractions of a batch."""
Shares = Mapping[str, tuple[float, float]]
"""{pool: (its weight in a batch at the first step, at the last step)}."""


@dataclass(frozen=True)
class LazySample:
    """A training image whose pixels are not read yet. boxes: [(class index, x1, y1, x2, y2)] in frame pixels;
    labelled_classes: indices of the classes that were labelled on the image. Only these classes enter the loss."""

    boxes: tuple[tuple, ...]
    labelled_classes: tuple[int, ...]
    image_id: str
    subject_id: str
    read_frame: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Sample:
    """A :class:`LazySample` after reading, with its image uint8 (size, size) and its boxes in units of grid cells."""

    image: np.ndarray
    boxes: tuple[tuple, ...]
    labelled_classes: tuple[int, ...]
    image_id: str
    subject_id: str


Image = TypeVar("Image", LazySample, Sample)


def read_sample(lazy_sample: LazySample, grid: Grid) -> Sample:
    """Read a sample's image, resize it to the input size of ``grid``, and convert the boxes to units of grid cells."""
    frame = lazy_sample.read_frame()
    small = cv2.resize(frame, (grid.size, grid.size), interpolation=cv2.INTER_AREA)
    corners = np.array([box[1:] for box in lazy_sample.boxes], np.float64).reshape(-1, 4)
    scaled = (corners * (grid.cells / frame.shape[0])).tolist()
    boxes = tuple((int(box[0]), *cells) for box, cells in zip(lazy_sample.boxes, scaled, strict=True))
    return Sample(small, boxes, lazy_sample.labelled_classes, lazy_sample.image_id, lazy_sample.subject_id)


def shuffle_boxes(samples: Sequence[Image], seed: int) -> list[Image]:
    """Return the images, each with the boxes of another image that has the same findings, drawn by ``seed``."""
    groups: dict[tuple, list[int]] = {}
    for place in sorted(range(len(samples)), key=lambda place: stable_hash("shuffled", seed, samples[place].image_id)):
        groups.setdefault(tuple(sorted({box[0] for box in samples[place].boxes})), []).append(place)
    donors = {}
    for order in groups.values():
        donors |= zip(order, order[1:] + order[:1], strict=True)
    return [replace(sample, boxes=samples[donors[place]].boxes) for place, sample in enumerate(samples)]


def take_patients(samples: Sequence[Image], share: float, seed: int) -> list[Image]:
    """Return the images of a fraction ``share`` of the patients, rounded up and drawn by ``seed``. A larger share
    contains the patients of every smaller one."""
    order = sorted((stable_hash("thinned", seed, name), name) for name in {sample.subject_id for sample in samples})
    selected_patients = {name for _, name in order[: ceil(share * len(order) - 1e-9)]}
    return [sample for sample in samples if sample.subject_id in selected_patients]


def shares_at(shares: Shares, progress: float) -> dict[str, float]:
    """Return {pool: fraction of a batch} at ``progress`` (0: first step; 1: last), interpolated from ``shares``."""
    batch_shares = {name: first + (last - first) * progress for name, (first, last) in shares.items()}
    total = sum(batch_shares.values())
    return {name: value / total for name, value in batch_shares.items()}


def draw_image(
    pools: Mapping[str, Sequence], batch_shares: Mapping[str, float], seed: int, update: int, place: int
) -> tuple[str, int, np.random.Generator]:
    """Return (pool, index of an image in it, generator for augmentation) for a ``place`` in the batch of a step."""
    names = [name for name in POOLS if batch_shares.get(name)]
    edges = np.cumsum([batch_shares[name] for name in names])
    random = np.random.default_rng(stable_hash("batch", seed, update, place))
    pool_draw, image_draw = random.random(2)
    name = names[min(int(np.searchsorted(edges, pool_draw, side="right")), len(names) - 1)]
    return name, int(image_draw * len(pools[name])), random


def batch_drawer(
    pools: Mapping[str, Sequence[Sample]], shares: Shares, grid: Grid, *, size: int, updates: int, seed: int
) -> Callable[[np.random.Generator, int], Batch]:
    """Return a function that draws the ``size`` images of a step. Its arguments are a generator (unused) and the
    step. ``updates``: number of steps of the training."""

    def draw(_: np.random.Generator, update: int) -> Batch:
        batch_shares = shares_at(shares, update / max(updates - 1, 1))
        samples, augmented = [], []
        for place in range(size):
            name, number, random = draw_image(pools, batch_shares, seed, update, place)
            samples.append(pools[name][number])
            augmented.append(augment_image(samples[-1].image, samples[-1].boxes, grid.cells, random))
        images, boxes = zip(*augmented, strict=True)
        return Batch(list(images), list(boxes), [list(sample.labelled_classes) for sample in samples])

    return draw
