"""The embedded anatomy engine. The lite organ net segments the edited image; geometry gives zones and lobes."""

import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import ANATOMY_LABELS, HEART, LUNGS
from cxr.imaging.anatomy.zones import zone_masks
from cxr.nets.map_net import MapNet

RESOURCE_FILES = ("organs/lite.onnx",)


class LiteAnatomy:
    """An engine that derives the 15 zone labels from lung masks, and segments the heart."""

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
