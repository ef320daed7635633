"""Where an image's frame lies in the original image."""

import numpy as np

from cxr.base.hdf5 import Shards
from cxr.geometry.affine import to_original


def read_geometry(frames: Shards, image_id: str) -> tuple[tuple[int, int], np.ndarray]:
    """Return (rows, columns) of the original image, and the affine from the frame to it, float64 (2, 3)."""
    rows, columns = (int(side) for side in frames.get("original_shape", image_id))
    return (rows, columns), frames.get("to_original", image_id)


def map_to_original(mask: np.ndarray, frames: Shards, image_id: str) -> np.ndarray:
    """Map a mask from the frame to the original image, bool (rows, columns)."""
    shape, affine = read_geometry(frames, image_id)
    return to_original(mask.astype(np.uint8), affine, shape).astype(bool)
