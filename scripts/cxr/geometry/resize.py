"""Resizing a mask to a square."""

import cv2
import numpy as np


def resize_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """Resize a mask (H, W) to bool (size, size) by nearest neighbour: row i is row floor(i * H / size)."""
    if mask.shape == (size, size):
        return mask.astype(bool)
    return cv2.resize(mask.astype(np.uint8), (size, size), interpolation=cv2.INTER_NEAREST).astype(bool)
