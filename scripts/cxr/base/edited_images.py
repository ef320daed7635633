"""Images that the anomaly stage has edited to look healthy, stored as differences from the 512 × 512 image (frame).

The anomaly map says by how much each pixel of the edited image is darker than the frame. The stage also stores by how
much each pixel is brighter, so that edited = frame - anomaly + brighter. The sum is exact in uint8, because one of the
two amounts is 0.
"""

import numpy as np

from cxr.base.hdf5 import Shard

ANOMALY, BRIGHTER, UNEDITED = "anomaly", "brighter", "unedited"
"""Fields of the stage's HDF5 files. UNEDITED is 1 for an image that the setting ``anomaly.images`` left unedited."""


def brightening(image: np.ndarray, edited: np.ndarray) -> np.ndarray:
    """Return by how much each pixel is brighter in ``edited`` than in ``image``, else 0. Arrays are uint8 (H, W)."""
    return edited - np.minimum(edited, image)


def read_edited_image(anomaly: Shard, frames: Shard, image_id: str) -> np.ndarray:
    """Return the edited image, uint8 (H, W). Raises KeyError for an unknown id, StoreError for a damaged file."""
    return frames.get("image", image_id) - anomaly.get(ANOMALY, image_id) + anomaly.get(BRIGHTER, image_id)


def is_unedited(anomaly: Shard, image_id: str) -> bool:
    """Return whether the stage left an image unedited, because its report needs no mask."""
    return UNEDITED in anomaly.fields and bool(anomaly.get(UNEDITED, image_id))
