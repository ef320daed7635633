"""The interface of organ engines, loading an engine by name, and drawing masks from CheXmask's landmarks."""

from typing import Protocol

import cv2
import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.imaging.organs.settings import OrgansSettings

OUTLINES = {"right lung": slice(0, 44), "left lung": slice(44, 94), "heart": slice(94, 120)}
"""{organ: indices of the landmarks that form its closed outline}, in the order of ``ORGAN_LABELS``."""
LANDMARKS = 120
_FAR = 1 << 15  # maximum coordinate that OpenCV can draw, px


class NoOrgans(Exception):
    """Raised for an image without lungs, which is excluded as ``no_lungs`` with the message as the detail."""


class OrganEngine(Protocol):
    """An engine that makes organ masks. ``labels``: their names, at least heart, right and left lung (patient's sides).

    An engine that looks up masks also has ``prepare(image_ids)``, which is called once at the start. An engine with a
    large net also has an attribute ``batch``, the batch size, or None if single images are as fast. Its method
    ``segment_batch(rows)`` takes a list with the arguments of ``segment`` for each image, and returns a list of masks
    or NoOrgans. It is called from one thread. The result for an image must not depend on other images.
    """

    labels: tuple[str, ...]

    def segment(self, image: np.ndarray, image_id: str, to_original: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Segment a frame, uint8 (512, 512); return masks, bool (K, 512, 512), in the order of ``labels``.

        ``to_original``: affine (2, 3) from the frame to the original of ``shape`` (rows, columns). The mask of an
        absent organ is empty. Several threads call this method at once. Raises NoOrgans if the image has no masks.
        """


def load_engine(name: str, options: OrgansSettings, setup: Setup | None = None) -> OrganEngine:
    """Load the engine ``cxr.imaging.organs.<name>``. Raises UserError if it is unknown or lacks a required organ."""
    engine = engine_module("cxr.imaging.organs", name).load(options, setup or Setup())
    if missing := [label for label in ORGAN_LABELS if label not in engine.labels]:
        raise UserError(f"organs.engine {name!r} lacks {', '.join(missing)}: choose another engine")
    return engine


def fill_outlines(points: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Fill the outlines of landmarks (120, 2: x, y) as CheXmask does; return masks of 0 and 1, uint8 (3, *shape).

    Points are pixel indices. Pixels on the outline belong to the mask. Raises ValueError unless 120 points are finite.
    """
    if points.shape != (LANDMARKS, 2) or not np.isfinite(points).all():
        raise ValueError(f"{LANDMARKS} finite landmarks (x, y) are needed, but the array has the shape {points.shape}")
    pixels = np.clip(np.round(points), -_FAR, _FAR).astype(np.int32)
    masks = np.zeros((len(OUTLINES), *shape), np.uint8)
    for mask, part in zip(masks, OUTLINES.values(), strict=True):
        cv2.drawContours(mask, [pixels[part].reshape(-1, 1, 2)], -1, 1, cv2.FILLED)
    return masks
