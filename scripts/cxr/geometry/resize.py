"""A mask in a square of another size."""

import cv2
import numpy as np


def resize_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """Return bool (size, size) of a mask (H, W) by nearest neighbour: pixel i is taken from floor(i * H / size)."""
    if mask.shape == (size, size):
        return mask.astype(bool)
    return cv2.resize(mask.astype(np.uint8), (size, size), interpolation=cv2.INTER_NEAREST).astype(bool)
