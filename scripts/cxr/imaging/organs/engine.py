"""What every organ engine offers, and how one is found by its name."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.vocabulary import ORGAN_LABELS


@dataclass(frozen=True)
class OrgansOptions:
    """Settings of the organs stage (section ``organs`` of the configuration); own: those of the engine alone."""

    engine: str
    max_mirrored: float
    min_upright: float
    min_lung_share: float
    max_lung_ratio: float
    border_margin: float
    max_border_share: float
    min_contrast: float
    max_saturated: float
    own: dict = field(default_factory=dict)


class NoOrgans(Exception):
    """There are no masks of an image, which stops as ``no_lungs``; the message is the detail, without patient text."""


class OrganEngine(Protocol):
    """A source of organ masks. ``labels`` hold at least right lung, left lung and heart; sides are the patient's.

    An engine that looks masks up has ``prepare(image_ids)`` too, which is called once, before all else.
    """

    labels: tuple[str, ...]

    def segment(
        self, image: np.ndarray, image_id: str, to_original: np.ndarray, original_shape: tuple[int, int]
    ) -> np.ndarray:
        """Return bool (K, 512, 512) masks, in the order of ``labels``, of a frame uint8 (512, 512).

        ``to_original`` is the frame-to-original affine (2, 3), ``original_shape`` (rows, columns) of the original. A
        mask is empty where the organ is not found. Called from several threads at once. Raises NoOrgans where nothing
        can be said of the image.
        """
        ...


def load(name: str, options: OrgansOptions, setup: Setup | None = None) -> OrganEngine:
    """Load an engine: the module ``cxr.imaging.organs.<name>`` makes one with ``load(options, setup)``.

    Raises UserError for an unknown name, or for an engine that lacks an organ every engine must give.
    """
    engine = engine_module("cxr.imaging.organs", name).load(options, setup or Setup())
    if missing := [label for label in ORGAN_LABELS if label not in engine.labels]:
        raise UserError(f"organs.engine {name!r} gives no {', '.join(missing)}: choose another engine")
    return engine
