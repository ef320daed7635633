"""Storing the anomaly stage's edited images as differences from the frame, and reading them back.

The anomaly map holds by how much the edited image is darker than the frame. The stage stores besides it only by how
much it is brighter: edited = frame - anomaly + brighter. Exact in uint8: one of the two is 0.
"""

import numpy as np

from cxr.base.hdf5 import Shard

ANOMALY, BRIGHTER, UNEDITED = "anomaly", "brighter", "unedited"
"""Fields of the anomaly shard. UNEDITED: 1 if the image was not edited (``anomaly.images``)."""


def brightening(image: np.ndarray, edited: np.ndarray) -> np.ndarray:
    """Return max(edited - image, 0), uint8 (H, W) as both."""
    return edited - np.minimum(edited, image)


def read_edited_image(anomaly: Shard, frames: Shard, image_id: str) -> np.ndarray:
    """Return the edited image, uint8 (H, W). Raises KeyError, or StoreError for a damaged chunk."""
    return frames.get("image", image_id) - anomaly.get(ANOMALY, image_id) + anomaly.get(BRIGHTER, image_id)


def is_unedited(anomaly: Shard, image_id: str) -> bool:
    """Return whether an image was not edited, because its report needs no mask."""
    return UNEDITED in anomaly.fields and bool(anomaly.get(UNEDITED, image_id))
