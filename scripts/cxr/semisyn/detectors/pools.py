"""Pools of training images, and the batches that are mixed from them.

Runs that are compared share every draw: which image of a pool a place of a batch takes, and how it is moved, are
functions of the seed, the update and the place. The pools ``synthetic``, ``unedited`` and ``shuffled`` list the same
jobs in the same order, so a place that shows an edited image in one run shows its unedited source in the control.
"""

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
"""In the order in which they share the places of a batch."""


@dataclass(frozen=True)
class LazySample:
    """A training image that is not read yet, and its boxes, each (class index, x1, y1, x2, y2) in frame pixels.

    labelled_classes: class indices of which the image's labels give every box; the others do not enter its loss. image_id,
    subject_id: whose it is; read: returns its frame, uint8 (side, side).
    """

    boxes: tuple[tuple, ...]
    labelled_classes: tuple[int, ...]
    image_id: str
    subject_id: str
    read_frame: Callable[[], np.ndarray]


@dataclass(frozen=True)
class Sample:
    """A training image uint8 (size, size), and its boxes, each (class index, x1, y1, x2, y2) in cells of the grid.

    labelled_classes: class indices of which the image's labels give every box; the others do not enter its loss. image_id,
    subject_id: whose it is.
    """

    image: np.ndarray
    boxes: tuple[tuple, ...]
    labelled_classes: tuple[int, ...]
    image_id: str
    subject_id: str


Image = TypeVar("Image", LazySample, Sample)


def make_sample(
    frame: np.ndarray,
    boxes: np.ndarray,
    classes: Sequence[int],
    labelled_classes: Sequence[int],
    grid: Grid,
    ids: tuple[str, str],
) -> Sample:
    """Return a sample of a square frame uint8 (H, H) with boxes (N, 4) in its pixels and their classes (N,).

    ``ids``: image_id and subject_id.
    """
    small = cv2.resize(frame, (grid.size, grid.size), interpolation=cv2.INTER_AREA)
    scaled = np.asarray(boxes, np.float64).reshape(-1, 4) * (grid.cells / frame.shape[0])
    grid_boxes = tuple((int(kind), *map(float, box)) for kind, box in zip(classes, scaled, strict=True))
    return Sample(small, grid_boxes, tuple(labelled_classes), *ids)


def read_samples(films: Sequence[LazySample], grid: Grid) -> list[Sample]:
    """Read films as samples of a grid."""
    samples = []
    for film in films:
        boxes, classes = np.array([box[1:] for box in film.boxes]), [box[0] for box in film.boxes]
        samples.append(
            make_sample(
                film.read_frame(), boxes, classes, film.labelled_classes, grid, (film.image_id, film.subject_id)
            )
        )
    return samples


def shuffle_boxes(samples: Sequence[Image], seed: int) -> list[Image]:
    """Return the images, each with another's boxes of the same findings: the control that tells boxes from pictures.

    Boxes go round one cycle in an order drawn by the seed, so that no image keeps its own, unless it is the only one.
    """
    groups: dict[tuple, list[int]] = {}
    for place in sorted(range(len(samples)), key=lambda place: stable_hash("shuffled", seed, samples[place].image_id)):
        groups.setdefault(tuple(sorted({box[0] for box in samples[place].boxes})), []).append(place)
    donors = {}
    for order in groups.values():
        donors |= zip(order, order[1:] + order[:1], strict=True)
    return [replace(sample, boxes=samples[donors[place]].boxes) for place, sample in enumerate(samples)]


def take_patients(samples: Sequence[Image], share: float, seed: int) -> list[Image]:
    """Return the images of a fraction of the patients, drawn by the seed; a smaller fraction is part of a larger one.

    The number of patients is rounded up.
    """
    patients = sorted(
        {sample.subject_id for sample in samples}, key=lambda patient: (stable_hash("thinned", seed, patient), patient)
    )
    selected_patients = set(patients[: ceil(share * len(patients) - 1e-9)])
    return [sample for sample in samples if sample.subject_id in selected_patients]


def take_images(samples: Sequence[Image], most: int, seed: int) -> list[Image]:
    """Return the images of the first patients of an order drawn by the seed, so many that ``most`` images are reached.

    The images of a patient stay together; of the last one only so many are taken as are needed. A smaller ``most``
    gives a part of a larger one's images.
    """
    ranked = sorted(samples, key=lambda sample: (stable_hash("thinned", seed, sample.subject_id), sample.image_id))
    return ranked[:most]


def shares_at(shares: Mapping[str, tuple[float, float]], progress: float) -> dict[str, float]:
    """Return each pool's share of a batch, summing to 1, when ``progress`` (0 to 1) of the updates are made.

    ``shares``: {pool: (at the beginning, at the end)}; between them it changes linearly.
    """
    batch_shares = {name: first + (last - first) * progress for name, (first, last) in shares.items()}
    total = sum(batch_shares.values())
    return {name: value / total for name, value in batch_shares.items()}


def even_shares(pools: Mapping[str, Sequence]) -> dict[str, tuple[float, float]]:
    """Return the shares with which each image of all pools is as likely as any other."""
    return {name: (float(len(pool)), float(len(pool))) for name, pool in pools.items() if pool}


def draw_image(
    pools: Mapping[str, Sequence], batch_shares: Mapping[str, float], seed: int, update: int, place: int
) -> tuple[str, int, np.random.Generator]:
    """Return the pool and the number of the image that a place of a batch takes, and the generator for its movement.

    ``batch_shares``: each pool's share of this batch (:func:`shares_at`).
    """
    names = [name for name in POOLS if batch_shares.get(name)]
    edges = np.cumsum([batch_shares[name] for name in names])
    random = np.random.default_rng(stable_hash("batch", seed, update, place))
    pool_draw, image_draw = random.random(2)
    name = names[min(int(np.searchsorted(edges, pool_draw, side="right")), len(names) - 1)]
    return name, int(image_draw * len(pools[name])), random


def batch_drawer(
    pools: Mapping[str, Sequence[Sample]],
    shares: Mapping[str, tuple[float, float]],
    grid: Grid,
    *,
    size: int,
    updates: int,
    seed: int,
) -> Callable[[np.random.Generator, int], Batch]:
    """Return what draws a batch of ``size`` images for each update; it takes nothing from the generator it is given."""

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
