"""The interface of counterfactual engines, and loading one by its name."""

from typing import Protocol

import numpy as np

from cxr.base.engines import Setup, engine_module
from cxr.imaging.anomaly.settings import AnomalySettings


class AnomalyEngine(Protocol):
    """An editor that removes lesions from a chest X-ray."""

    def edit(self, image: np.ndarray, organs: dict[str, np.ndarray]) -> np.ndarray:
        """Return the image without lesions, grey levels 0..255, uint8 or float (512, 512).

        ``image``: a frame uint8 (512, 512); ``organs``: its masks {label: bool (512, 512)}, at least right lung, left
        lung and heart. The stage restores the pixels outside the edit region and checks the values, so an engine may
        return any image of this shape. It is called from several threads at once.

        An engine with a large net has ``edit_batch(images, organs, image_ids)`` instead, with lists as arguments and
        result, and the attribute ``batch``, the batch size. It is called from one thread; no result may depend on the
        other images.
        """
        ...


def load_engine(name: str, options: AnomalySettings, setup: Setup | None = None) -> AnomalyEngine:
    """Load an engine with the function ``load(options, setup)`` of the module ``cxr.imaging.anomaly.<name>``.

    Raises UserError for an unknown name.
    """
    return engine_module("cxr.imaging.anomaly", name).load(options, setup or Setup())
