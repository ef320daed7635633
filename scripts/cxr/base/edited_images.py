"""Edited images of the anomaly stage, stored as differences from the frame.

The anomaly map is the amount by which each pixel of the edited image is darker than the frame. The stage also stores
the amount by which it is brighter, so that edited = frame - anomaly + brighter. The sum is exact in uint8, because one
of the two amounts is 0.
"""

import numpy as np

from cxr.base.hdf5 import Shard

ANOMALY, BRIGHTER, UNEDITED = "anomaly", "brighter", "unedited"
"""Names of fields of the anomaly shard. The field UNEDITED is 1 if an image was not edited (``anomaly.images``)."""


def brightening(image: np.ndarray, edited: np.ndarray) -> np.ndarray:
    """Return by how much each pixel is brighter in ``edited``, max(edited - image, 0). All arrays are uint8 (H, W)."""
    return edited - np.minimum(edited, image)


def read_edited_image(anomaly: Shard, frames: Shard, image_id: str) -> np.ndarray:
    """Return the edited image, uint8 (H, W). Raises KeyError for an unknown id, StoreError for a damaged chunk."""
    return frames.get("image", image_id) - anomaly.get(ANOMALY, image_id) + anomaly.get(BRIGHTER, image_id)


def is_unedited(anomaly: Shard, image_id: str) -> bool:
    """Return whether the stage left an image unedited, because its report needs no mask."""
    return UNEDITED in anomaly.fields and bool(anomaly.get(UNEDITED, image_id))
