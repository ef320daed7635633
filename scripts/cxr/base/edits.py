"""Read what the anomaly stage made of an image."""

from cxr.base.hdf5 import Shard

UNEDITED = "unedited"
"""Field of the anomaly shard: 1 where the image itself stands as the edited image (``anomaly.images``), else 0."""


def unedited(anomaly: Shard, image_id: str) -> bool:
    """Return whether an image was not edited because its report asks for no mask. Older shards have edits alone."""
    return UNEDITED in anomaly.fields and bool(anomaly.get(UNEDITED, image_id))
