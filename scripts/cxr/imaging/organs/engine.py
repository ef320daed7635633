"""The interface of organ engines, loading one by its name, and masks from the outlines of the CheXmask models."""

from typing import Protocol

import cv2
import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.imaging.organs.settings import OrgansSettings

OUTLINES = {"right lung": slice(0, 44), "left lung": slice(44, 94), "heart": slice(94, 120)}
"""The landmarks of each organ, in the order of ``labels.ORGAN_LABELS``: a closed ring each."""
LANDMARKS = 120
_FAR = 1 << 15  # largest coordinate that OpenCV can draw, px


class NoOrgans(Exception):
    """An image has no masks and is excluded as ``no_lungs``. The message is the detail, without patient text."""


class OrganEngine(Protocol):
    """A source of organ masks. ``labels`` holds at least right lung, left lung and heart; sides are the patient's.

    An engine that looks masks up also has ``prepare(image_ids)``, which is called once, at the start. An engine with a
    large net has ``segment_batch(rows)``: it takes a list of the arguments of ``segment`` and returns a list of masks
    or NoOrgans; and the attribute ``batch``: the batch size, or None where one image at a time is as fast. It is called
    from one thread; no result may depend on the other images.
    """

    labels: tuple[str, ...]

    def segment(self, image: np.ndarray, image_id: str, to_original: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Return bool (K, 512, 512) masks, in the order of ``labels``, of a frame uint8 (512, 512).

        ``to_original``: the affine (2, 3) to the original of ``shape`` (rows, columns). The mask of an absent
        organ is empty. It is called from several threads at once. Raises NoOrgans if there is no result for the image.
        """


def load_engine(name: str, options: OrgansSettings, setup: Setup | None = None) -> OrganEngine:
    """Load the engine ``cxr.imaging.organs.<name>``. Raises UserError if it is unknown or lacks a required organ."""
    engine = engine_module("cxr.imaging.organs", name).load(options, setup or Setup())
    if missing := [label for label in ORGAN_LABELS if label not in engine.labels]:
        raise UserError(f"organs.engine {name!r} gives no {', '.join(missing)}: choose another engine")
    return engine


def fill_outlines(points: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Return uint8 (3, rows, columns), 1 inside each outline of ``points`` (120, 2: x, y), as the database does.

    A point is a pixel index, not a position between pixels; the outline's pixels belong to the mask. Raises ValueError
    for another number of points or for NaN.
    """
    if points.shape != (LANDMARKS, 2) or not np.isfinite(points).all():
        raise ValueError(f"{LANDMARKS} landmarks of two numbers are needed, not an array of shape {points.shape}")
    pixels = np.clip(np.round(points), -_FAR, _FAR).astype(np.int32)
    masks = np.zeros((len(OUTLINES), *shape), np.uint8)
    for mask, part in zip(masks, OUTLINES.values(), strict=True):
        cv2.drawContours(mask, [pixels[part].reshape(-1, 1, 2)], -1, 1, cv2.FILLED)
    return masks
