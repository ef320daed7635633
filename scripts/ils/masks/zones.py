"""The anatomy masks of one image, eight pixels a byte, as the shard holds them."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ils.core.labels import VALID_LOCATIONS


class Zones:
    """Anatomy masks by label: ``packed`` uint8 (K, H, W / 8), its rows named by ``labels`` (at least the 15 zones)."""

    def __init__(self, packed: np.ndarray, labels: Sequence[str]):
        self.packed = packed
        self._row = {label: row for row, label in enumerate(labels)}
        self._met: dict[str, frozenset[str]] = {}

    def __getitem__(self, label: str) -> np.ndarray:
        """Return the mask of a label, uint8 packed (H, W / 8)."""
        return self.packed[self._row[label]]

    @cached_property
    def places(self) -> np.ndarray:
        """The ten valid locations in the order of Table 9, uint8 packed (10, H, W / 8)."""
        return self.packed[[self._row[place] for place in VALID_LOCATIONS]]

    @cached_property
    def visible(self) -> frozenset[str]:
        """The valid locations whose mask is not empty."""
        return self.met(np.array(255, np.uint8))

    def met(self, mask: np.ndarray) -> frozenset[str]:
        """Return the valid locations that share a pixel with a mask, uint8 packed (H, W / 8)."""
        shared = (self.places & mask).any(axis=(1, 2))
        return frozenset(place for place, meets in zip(VALID_LOCATIONS, shared, strict=True) if meets)

    def met_by(self, label: str) -> frozenset[str]:
        """Return the valid locations that share a pixel with the mask of a label."""
        if label not in self._met:
            self._met[label] = self.met(self[label])
        return self._met[label]

    def union(self, labels: Sequence[str]) -> np.ndarray:
        """Return the union of masks, uint8 packed (H, W / 8). ``labels``: at least one."""
        return np.bitwise_or.reduce([self[label] for label in labels])


def pixels(packed: np.ndarray) -> int:
    """Return the number of pixels of a packed mask."""
    return int(np.bitwise_count(packed).sum())
