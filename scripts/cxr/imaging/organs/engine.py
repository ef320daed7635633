"""The interface of organ engines, and loading one by its name."""

from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.imaging.organs.settings import OrgansSettings


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

    def segment(
        self, image: np.ndarray, image_id: str, to_original: np.ndarray, original_shape: tuple[int, int]
    ) -> np.ndarray:
        """Return bool (K, 512, 512) masks, in the order of ``labels``, of a frame uint8 (512, 512).

        ``to_original``: the frame-to-original affine (2, 3); ``original_shape``: (rows, columns) of the original. The
        mask of an organ that is not found is empty. It is called from several threads at once. Raises NoOrgans if there
        is no result for the image.
        """
        ...


def load_engine(name: str, options: OrgansSettings, setup: Setup | None = None) -> OrganEngine:
    """Load an engine with the function ``load(options, setup)`` of the module ``cxr.imaging.organs.<name>``.

    Raises UserError for an unknown name, or for an engine without a required organ.
    """
    engine = engine_module("cxr.imaging.organs", name).load(options, setup or Setup())
    if missing := [label for label in ORGAN_LABELS if label not in engine.labels]:
        raise UserError(f"organs.engine {name!r} gives no {', '.join(missing)}: choose another engine")
    return engine
