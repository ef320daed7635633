"""Run a small ONNX net that segments a frame (image of fixed size) into one region per label."""

import json
from pathlib import Path

import cv2
import numpy as np

from cxr.geometry.masks import largest_component
from cxr.nets import onnx


def prepare_frame(image: np.ndarray, size: int, percentiles: tuple[float, float]) -> np.ndarray:
    """Shrink a frame uint8 (H, W) to float32 (size, size) and scale it to 0..1.

    The two ``percentiles`` of the pixels above 0 become 0 and 1. Pixels of 0 are ignored, because padding and
    collimated borders do not depend on the exposure. An image with fewer than two pixels above 0 becomes zeros.
    """
    small = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA).astype(np.float32) / 255
    values = small[small > 0]
    if values.size < 2:
        return np.zeros_like(small)
    low, high = np.percentile(values, percentiles).astype(np.float32)
    return np.clip((small - low) / max(high - low, np.float32(1e-3)), 0, 1)


def clean_mask(probability: np.ndarray) -> np.ndarray:
    """Return the largest 8-connected component above 0.5 of a map (H, W), with its holes filled."""
    return largest_component(probability > 0.5)


class MapNet:
    """A net that maps a frame to one probability map for each label. Several threads may use it. The ONNX file's
    metadata are ``labels`` (joined by ``|``), ``size`` (side of its square input, px) and ``percentiles`` (of
    :func:`prepare_frame`)."""

    def __init__(self, path: str | Path):
        metadata = onnx.read_metadata(path)
        self.path = path
        self.labels: tuple[str, ...] = tuple(metadata["labels"].split("|"))
        self._size, self._percentiles = int(metadata["size"]), tuple(json.loads(metadata["percentiles"]))

    def maps(self, image: np.ndarray) -> np.ndarray:
        """Return the probability of each label, float32 (K, H, W), for a frame uint8 (H, W)."""
        small = prepare_frame(image, self._size, self._percentiles)
        probabilities = onnx.run_model(self.path, image=small[None, None])[0][0]
        return np.stack([cv2.resize(p, image.shape[::-1], interpolation=cv2.INTER_LINEAR) for p in probabilities])

    def masks(self, image: np.ndarray) -> np.ndarray:
        """Return the region of each label, bool (K, H, W), for a frame uint8 (H, W). A region is connected or empty."""
        return np.stack([clean_mask(p) for p in self.maps(image)])
