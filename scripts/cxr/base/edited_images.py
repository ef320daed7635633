"""What the anomaly stage keeps of an edited image, and how it is read back.

Most pixels of an edited image are the frame's, and where it is darker the anomaly map holds by how much. So the stage
keeps beside the map only by how much the edited image is brighter: edited = frame - anomaly + brighter, exact in uint8,
because of the two at most one is not 0 at a pixel. Older shards hold the edited image itself.
"""

import numpy as np

from cxr.base.hdf5 import Shard

EDITED, ANOMALY, BRIGHTER, UNEDITED = "edited", "anomaly", "brighter", "unedited"
"""Fields of the anomaly shard. UNEDITED: 1 where the image itself stands as the edited image (``anomaly.images``)."""


def brightening(image: np.ndarray, edited: np.ndarray) -> np.ndarray:
    """Return max(edited - image, 0), uint8 (H, W) as both."""
    return edited - np.minimum(edited, image)


def read_edited_image(anomaly: Shard, frames: Shard, image_id: str) -> np.ndarray:
    """Return the edited image, uint8 (H, W). Raises KeyError, or StoreError for a damaged chunk."""
    if EDITED in anomaly.fields:
        return anomaly.get(EDITED, image_id)
    return frames.get("image", image_id) - anomaly.get(ANOMALY, image_id) + anomaly.get(BRIGHTER, image_id)


def is_unedited(anomaly: Shard, image_id: str) -> bool:
    """Return whether an image was not edited because its report asks for no mask. Older shards have edits alone."""
    return UNEDITED in anomaly.fields and bool(anomaly.get(UNEDITED, image_id))
