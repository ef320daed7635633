"""The embedded organ engine: a small U-Net on the CPU (resources/organs; made by its train.py).

The net was trained on complete lungs, so it draws truncated ones beyond the image's edge; these parts are removed. Its
lung masks include the lung behind the heart, as radiologists outline it; a setting removes that part.
"""

import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import CARDIOMEDIASTINUM, LUNGS
from cxr.geometry.masks import largest_component
from cxr.imaging.organs.body import body_mask, clip_masks
from cxr.imaging.organs.quality import content_rectangle
from cxr.imaging.organs.settings import OrgansSettings
from cxr.nets.map_net import MapNet

RESOURCE_FILES = ("organs/lite.onnx",)


class LiteOrgans:
    """Right lung, left lung, heart and cardiomediastinum, one connected region each."""

    def __init__(self, behind_heart: bool):
        self.behind_heart = behind_heart
        self._net = MapNet(RESOURCES / RESOURCE_FILES[0])
        self.labels = self._net.labels

    def segment(
        self, image: np.ndarray, image_id: str, to_original: np.ndarray, original_shape: tuple[int, int]
    ) -> np.ndarray:
        """Return bool (4, 512, 512); see :class:`cxr.imaging.organs.engine.OrganEngine`."""
        rectangle = content_rectangle(to_original, original_shape, image.shape[0])
        masks = clip_masks(self._net.masks(image), body_mask(image, rectangle))
        return masks if self.behind_heart else visible(masks, self.labels)


def visible(masks: np.ndarray, labels: tuple[str, ...]) -> np.ndarray:
    """Return the masks bool (K, H, W) with the lungs ending at the cardiomediastinum, one region each."""
    middle = masks[labels.index(CARDIOMEDIASTINUM)]
    labelled_masks = zip(labels, masks, strict=True)
    return np.stack([largest_component(mask & ~middle) if label in LUNGS else mask for label, mask in labelled_masks])


def load(options: OrgansSettings, setup: object = None) -> LiteOrgans:
    """Load the engine."""
    return LiteOrgans(options.lite.behind_heart)
