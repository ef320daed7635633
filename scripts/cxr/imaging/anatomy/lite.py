"""The anatomy engine ``lite``, which segments lungs and heart, and computes lung zones and lobes by geometry."""

import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import ANATOMY_LABELS, HEART, LUNGS
from cxr.imaging.anatomy.zones import zone_masks
from cxr.nets.map_net import MapNet

RESOURCE_FILES = ("organs/lite.onnx",)


class LiteAnatomy:
    """An engine that segments lungs and heart, and derives the lung zones and lobes from the lung masks."""

    def __init__(self) -> None:
        self._net = MapNet(RESOURCES / RESOURCE_FILES[0])

    def segment(self, image: np.ndarray) -> np.ndarray:
        """Segment an edited frame, uint8 (512, 512); return masks, bool (16, 512, 512)."""
        organs = dict(zip(self._net.labels, self._net.masks(image), strict=True))
        masks = zone_masks(*(organs[lung] for lung in LUNGS)) | {HEART: organs[HEART]}
        return np.stack([masks[label] for label in ANATOMY_LABELS])


def load(options: object = None, setup: object = None) -> LiteAnatomy:
    """Load the engine, which has no settings."""
    return LiteAnatomy()
