"""Edited images of the anomaly stage, stored as differences from the frame.

The anomaly map is the amount by which the edited image is darker than the frame. In addition, the stage stores only
the amount by which it is brighter: edited = frame - anomaly + brighter. This is exact in uint8: one of them is 0.
"""

import numpy as np

from cxr.base.hdf5 import Shard

ANOMALY, BRIGHTER, UNEDITED = "anomaly", "brighter", "unedited"
"""Names of fields of the anomaly shard. UNEDITED is 1 if the image was not edited (setting ``anomaly.images``)."""


def brightening(image: np.ndarray, edited: np.ndarray) -> np.ndarray:
    """Return max(edited - image, 0); both images and the result are uint8 (H, W)."""
    return edited - np.minimum(edited, image)


def read_edited_image(anomaly: Shard, frames: Shard, image_id: str) -> np.ndarray:
    """Return the edited image, uint8 (H, W). Raises KeyError, or StoreError for a damaged chunk."""
    return frames.get("image", image_id) - anomaly.get(ANOMALY, image_id) + anomaly.get(BRIGHTER, image_id)


def is_unedited(anomaly: Shard, image_id: str) -> bool:
    """Return whether an image was not edited, because its report needs no mask."""
    return UNEDITED in anomaly.fields and bool(anomaly.get(UNEDITED, image_id))
