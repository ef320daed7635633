"""The organ engine ``lite``: a small U-Net on the CPU (resources/organs; trained by train.py there).

The net was trained on complete lungs. It therefore completes truncated lungs beyond the image's edge, and these parts
are removed. Its lung masks include the lung behind the heart, as radiologists outline it. The setting
``organs.lite.behind_heart`` can exclude this part.
"""

import cv2
import numpy as np

from cxr.base.paths import RESOURCES
from cxr.base.vocabulary import CARDIOMEDIASTINUM, LUNGS
from cxr.geometry.masks import largest_component
from cxr.imaging.organs.quality import Rectangle, content_rectangle
from cxr.imaging.organs.settings import OrgansSettings
from cxr.nets.map_net import MapNet

RESOURCE_FILES = ("organs/lite.onnx",)
BLUR = 2.0  # SD of the blur before thresholding, pixels, so that noise and text do not split black regions
BLACK = 0.02  # maximum of black, as a fraction of the range of percentiles 0.5 to 99.5; 0.06 would remove dark apices


class LiteOrgans:
    """An engine for right lung, left lung, heart and cardiomediastinum. Each mask is one connected region."""

    def __init__(self, behind_heart: bool):
        self.behind_heart = behind_heart
        self._net = MapNet(RESOURCES / RESOURCE_FILES[0])
        self.labels = self._net.labels

    def segment(self, image: np.ndarray, image_id: str, to_original: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Return masks, bool (4, 512, 512). See :class:`cxr.imaging.organs.engine.OrganEngine`."""
        rectangle = content_rectangle(to_original, shape, image.shape[0])
        masks = clip_masks(self._net.masks(image), body_mask(image, rectangle))
        return masks if self.behind_heart else visible(masks, self.labels)


def body_mask(image: np.ndarray, rectangle: Rectangle) -> np.ndarray:
    """Return a mask of the body, bool (H, W).

    ``image``: uint8 (H, W); ``rectangle``: x1, y1, x2, y2 of the image in the frame. The mask excludes everything
    outside the rectangle, and black regions that touch the rectangle's edge: air around the body, collimator, bars.
    """
    x1, y1, x2, y2 = (round(edge) for edge in rectangle)
    picture = np.zeros(image.shape, bool)
    picture[y1:y2, x1:x2] = True
    values = image[picture & (image > 0)]
    if not values.size:
        return picture
    low, high = np.percentile(values, (0.5, 99.5))
    black = (cv2.GaussianBlur(image, (0, 0), BLUR) < low + BLACK * (high - low)) | ~picture
    padded = np.pad(black, 1, constant_values=True).astype(np.uint8)
    _, labels = cv2.connectedComponents(padded, connectivity=4)
    return picture & (labels[1:-1, 1:-1] != labels[0, 0])


def clip_masks(masks: np.ndarray, region: np.ndarray) -> np.ndarray:
    """Clip masks, bool (K, H, W), to ``region`` (H, W), and reduce each to its largest connected component."""
    return np.stack([largest_component(mask & region) for mask in masks])


def visible(masks: np.ndarray, labels: tuple[str, ...]) -> np.ndarray:
    """Remove the cardiomediastinum from the lungs among ``masks``, bool (K, H, W). Keep one region of each lung."""
    middle = masks[labels.index(CARDIOMEDIASTINUM)]
    labelled_masks = zip(labels, masks, strict=True)
    return np.stack([largest_component(mask & ~middle) if label in LUNGS else mask for label, mask in labelled_masks])


def load(options: OrgansSettings, setup: object = None) -> LiteOrgans:
    """Load the engine."""
    return LiteOrgans(options.lite.behind_heart)
