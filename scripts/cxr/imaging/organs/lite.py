"""The embedded organ engine: a small U-Net on the CPU (resources/organs; made by its train.py).

The net learnt whole lungs, so where a film is cut it draws beyond the film: that is taken off.
"""

import numpy as np

from cxr.base.paths import RESOURCES
from cxr.imaging.organs.body import inside, mended
from cxr.imaging.organs.quality import content_rectangle
from cxr.nets.map_net import MapNet

RESOURCE_FILES = ("organs/lite.onnx",)


class LiteOrgans:
    """Right lung, left lung, heart and cardiomediastinum, one connected region each."""

    def __init__(self):
        self._net = MapNet(RESOURCES / RESOURCE_FILES[0])
        self.labels = self._net.labels

    def segment(
        self, image: np.ndarray, image_id: str, to_original: np.ndarray, original_shape: tuple[int, int]
    ) -> np.ndarray:
        """Return bool (4, 512, 512); see :class:`cxr.imaging.organs.engine.OrganEngine`."""
        rectangle = content_rectangle(to_original, original_shape, image.shape[0])
        return mended(self._net.masks(image), inside(image, rectangle))


def load(options: object, setup: object = None) -> LiteOrgans:
    """Load the engine; it has no settings of its own."""
    return LiteOrgans()
