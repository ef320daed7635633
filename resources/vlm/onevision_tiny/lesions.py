"""What the tower of RadVLM's small model learns lesions from: those drawn in synthetic cohorts, and further ones.

A cohort has few lesions of each type. Painting more of them into its pictures costs milliseconds, and where they lie is
known. The pixels' truth is used here alone: the facts that the model is told later are those of the workflow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from cxr.base.hdf5 import Shard
from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import LESIONS, LUNGS, ZONE_LABELS
from cxr.ils.templates import CARDIOMEGALY
from cxr.imaging.phantom.make_phantom import EXTENT
from cxr.painting.lesions import paint

COPIES = 3
"""Painted copies of a picture, beside itself."""
MOST = 3
"""Largest number of lesions that are painted into a copy."""
STRENGTHS = (0.7, 0.85, 1.0, 1.2)
HELD = 64
"""Side that masks are held at."""
BOTH = 0.3
"""Share of the effusions on both sides."""
Window = tuple[slice, slice]

PAINTED = tuple(lesion for lesion in LESIONS if lesion != CARDIOMEGALY)


@dataclass(frozen=True)
class Lesions:
    """A picture, uint8 (H, W), and where its lesions are, uint8 (LESIONS, HELD, HELD) from 0 to 255."""

    image_id: str
    picture: np.ndarray
    masks: np.ndarray

    def boxes(self) -> np.ndarray:
        """Return the box around all lesions of each type, (LESIONS, 4) as fractions; NaN for a type that it lacks."""
        boxes = np.full((len(self.masks), 4), np.nan)
        for at, mask in enumerate(self.masks > 127):
            if mask.any():
                rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
                boxes[at] = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / HELD
        return boxes


def drawn(
    truth: Path, pictures: Mapping[str, np.ndarray], covered: Mapping[str, Window], seed: int
) -> Iterator[Lesions]:
    """Yield the pictures of a cohort, and the painted copies of each.

    ``truth``: the shard of the phantom stage. ``pictures``: uint8 (H, W), without the frame's padding. ``covered``: the
    rows and columns of the frame that each covers.
    """
    with Shard(truth) as shard:
        for image_id, picture in sorted(pictures.items()):
            shape = picture.shape[::-1]
            there = {
                label: cv2.resize(mask[covered[image_id]].astype(np.uint8), shape, interpolation=cv2.INTER_NEAREST) > 0
                for label, mask in shard.masks(image_id).items()
            }
            yield Lesions(image_id, picture, _held(there))
            for copy in range(COPIES):
                random = np.random.default_rng(stable_hash(seed, "painted", image_id, copy))
                yield _painted(image_id, picture, there, random)


def _painted(image_id: str, picture: np.ndarray, there: dict[str, np.ndarray], random: np.random.Generator) -> Lesions:
    """Return a copy with further lesions, in zones drawn at random."""
    right, left = (there[lung] for lung in LUNGS)
    middle = float(np.mean([np.flatnonzero(lung.any(0)).mean() for lung in (right, left) if lung.any()]))
    found, changed, strength = dict(there), picture.astype(np.float32) / 255, float(random.choice(STRENGTHS))
    for lesion in map(str, random.choice(PAINTED, size=int(random.integers(1, MOST + 1)), replace=False)):
        region = there[str(random.choice(ZONE_LABELS))]
        if lesion == "edema" or (lesion == "effusion" and random.random() < BOTH):
            region = right | left
        elif lesion == "effusion":  # it climbs along the whole lung
            region = (right, left)[int(random.integers(2))]
        changed, new = paint(
            changed, lesion, region, random, strength, midline=middle, extent=float(random.uniform(*EXTENT))
        )
        found[lesion] = found[lesion] | new
    return Lesions(image_id, np.rint(changed * 255).astype(np.uint8), _held(found))


def _held(there: dict[str, np.ndarray]) -> np.ndarray:
    masks = [there[lesion].astype(np.uint8) * 255 for lesion in LESIONS]
    return np.stack([cv2.resize(mask, (HELD, HELD), interpolation=cv2.INTER_AREA) for mask in masks])
