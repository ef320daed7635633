"""Read the masks and frames of a dataset by id, from any number of shards."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.geometry.affine import to_original


class Sources:
    """Read masks and frames by id. Use inside ``with``; one row is in memory at a time."""

    def __init__(self, index: str, masks: Sequence[str], images: str, frames: Sequence[str]):
        self._index, self._images = index, images
        self._paths = {"mask_id": masks, "image_id": frames}

    def __enter__(self) -> "Sources":
        self._stack = ExitStack()
        self._shards = {
            (key, Path(path).stem): self._stack.enter_context(Shard(path, key=key))
            for key, paths in self._paths.items()
            for path in paths
        }
        places = {"mask_id": read_table(self._index), "image_id": read_table(self._images)}
        self._places = {key: dict(table.select(key, "shard").iter_rows()) for key, table in places.items()}
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _shard(self, key: str, name: str) -> Shard:
        return self._shards[key, self._places[key][name]]

    def mask(self, mask_id: str) -> np.ndarray:
        """Return a mask in the frame, bool (H, W)."""
        return self._shard("mask_id", mask_id).get("mask", mask_id)

    def code_digest(self) -> str:
        """Return the digest of the code that made the masks, "" if the file has none."""
        shards = [shard for (key, _), shard in self._shards.items() if key == "mask_id"]
        return str(shards[0].attrs.get("code_digest", ""))

    def frame(self, image_id: str) -> np.ndarray:
        """Return a frame, uint8 (H, W)."""
        return self._shard("image_id", image_id).get("image", image_id)

    def geometry(self, image_id: str) -> tuple[tuple[int, int], np.ndarray]:
        """Return (rows, columns) of the original image, and the affine from the frame to it, float64 (2, 3)."""
        shard = self._shard("image_id", image_id)
        rows, columns = (int(side) for side in shard.get("original_shape", image_id))
        return (rows, columns), shard.get("to_original", image_id)

    def mask_in_original(self, mask: np.ndarray, image_id: str) -> np.ndarray:
        """Map a mask from the frame to the original image, bool (rows, columns)."""
        shape, affine = self.geometry(image_id)
        return to_original(mask.astype(np.uint8), affine, shape).astype(bool)
