"""What every counterfactual engine offers, and how one is found by its name."""

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module


@dataclass(frozen=True)
class AnomalyOptions:
    """Settings of the anomaly stage (section ``anomaly`` of the configuration); own: those of the engine alone."""

    engine: str
    own: dict = field(default_factory=dict)


class AnomalyEngine(Protocol):
    """An editor that takes lesions out of a chest X-ray."""

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the image without lesions, grey levels 0..255, uint8 or float (512, 512).

        ``image`` is a frame uint8 (512, 512), ``organs`` its masks {label: bool (512, 512)}, at least right lung, left
        lung and heart. The stage restores the pixels outside the edit region and checks the values, so an engine may
        return any picture of this shape. Called from several threads at once.

        An engine of a large net has ``edit_batch(images, organs, image_ids)`` instead, lists in and a list out, and
        ``batch``, how many at a time: it is called from one thread, and no picture depends on the others.
        """
        ...


def load(name: str, options: AnomalyOptions, setup: Setup | None = None) -> AnomalyEngine:
    """Load an engine: the module ``cxr.imaging.anomaly.<name>`` makes one with ``load(options, setup)``.

    Raises UserError for an unknown name.
    """
    return engine_module("cxr.imaging.anomaly", name).load(options, setup or Setup())
