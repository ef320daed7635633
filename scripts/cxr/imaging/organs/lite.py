"""The embedded organ engine: a small U-Net on the CPU (resources/organs; made by its train.py)."""

import numpy as np

from cxr.base.paths import RESOURCES
from cxr.nets.map_net import MapNet

RESOURCE_FILES = ("organs/lite.onnx",)


class LiteOrgans:
    """Right lung, left lung, heart and cardiomediastinum, one connected region each."""

    def __init__(self):
        self._net = MapNet(RESOURCES / RESOURCE_FILES[0])
        self.labels = self._net.labels

    def segment(self, image: np.ndarray, *_: object) -> np.ndarray:
        """Return bool (4, 512, 512) masks of a frame uint8 (512, 512)."""
        return self._net.masks(image)


def load(options: object, setup: object = None) -> LiteOrgans:
    """Load the engine; it has no settings of its own."""
    return LiteOrgans()
