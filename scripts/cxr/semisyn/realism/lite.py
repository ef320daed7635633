"""Feature engine lite: 128 features, the mean over the deepest layer of the embedded detector. They are not FID's.

The detector was trained on painted lesions too (resources/boxes/CARD.md), so its distances say little about them.
"""

from collections.abc import Sequence

import cv2
import numpy as np

from cxr.base.engines import Setup
from cxr.base.paths import RESOURCES
from cxr.detection.weights import read_card
from cxr.nets.onnx import compute_layer
from cxr.semisyn.realism.engine import Features, digest_of

METRICS = {"frechet": "frechet_lite", "kernel": "kernel_lite"}
RESOURCE_FILES = ("boxes/lite.onnx",)
POOLED = "/ReduceMean_2_output_0"
"""Output of the layer that pools the whole image (input of ``Detector.whole``)."""


class LiteFeatures:
    """See :class:`cxr.semisyn.realism.engine.FeatureEngine`."""

    batch = 1

    def __init__(self):
        self._path = RESOURCES / RESOURCE_FILES[0]
        self.weights, self._side = digest_of(str(self._path)), read_card(self._path).grid.size

    def features(self, images: Sequence[np.ndarray], prompts: Sequence[str]) -> Features:
        """See :class:`cxr.semisyn.realism.engine.FeatureEngine`."""
        side = (self._side, self._side)
        small = [cv2.resize(image, side, interpolation=cv2.INTER_AREA).astype(np.float32) / 255 for image in images]
        return Features(
            np.concatenate([compute_layer(self._path, POOLED, image=small_image[None, None]) for small_image in small])
        )


def load(setup: Setup) -> LiteFeatures:
    """Load the engine. Raises UserError if its weights are missing."""
    return LiteFeatures()
