"""The anatomy masks of one image, packed eight pixels per byte as in the shard."""

from collections.abc import Sequence
from functools import cached_property

import cv2
import numpy as np

from cxr.base.vocabulary import VALID_LOCATIONS


class Zones:
    """Anatomy masks by label: ``packed`` uint8 (K, H, W / 8), its rows named by ``labels`` (at least the 15 zones)."""

    def __init__(self, packed: np.ndarray, labels: Sequence[str]):
        self.packed = packed
        self._row = {label: row for row, label in enumerate(labels)}
        self._met: dict[str, frozenset[str]] = {}
        self._empty: dict[str, bool] = {}

    def __getitem__(self, label: str) -> np.ndarray:
        """Return the mask of a label, uint8 packed (H, W / 8)."""
        return self.packed[self._row[label]]

    def empty(self, label: str) -> bool:
        """Whether the mask of a label has no pixel."""
        if label not in self._empty:
            self._empty[label] = not self[label].any()
        return self._empty[label]

    @cached_property
    def _words(self) -> np.ndarray:
        return view_as_words(self.packed)

    @cached_property
    def visible(self) -> frozenset[str]:
        """The valid locations whose mask is not empty."""
        return frozenset(place for place in VALID_LOCATIONS if not self.empty(place))

    def met(self, mask: np.ndarray) -> frozenset[str]:
        """Return the valid locations that share a pixel with a mask, uint8 packed (H, W / 8)."""
        shared = self._shared(mask).any(axis=(1, 2)).tolist()
        return frozenset(place for place in VALID_LOCATIONS if shared[self._row[place]])

    def met_by(self, label: str) -> frozenset[str]:
        """Return the valid locations that share a pixel with the mask of a label."""
        if label not in self._met:
            self._met[label] = self.met(self[label])
        return self._met[label]

    def held(self, mask: np.ndarray) -> dict[str, int]:
        """Return the pixels that each label's mask shares with a mask, uint8 packed (H, W / 8)."""
        shared = np.bitwise_count(self._shared(mask)).sum(axis=(1, 2), dtype=np.int64)
        return dict(zip(self._row, shared.tolist(), strict=True))

    def _shared(self, mask: np.ndarray) -> np.ndarray:
        """Return the overlap of each label's mask with a mask, in the rows from that mask's first pixel to its last."""
        _, top, _, height = cv2.boundingRect(mask)
        some = slice(top, top + height)
        return self._words[:, some] & view_as_words(mask)[some]

    def union(self, labels: Sequence[str]) -> np.ndarray:
        """Return the union of masks, uint8 packed (H, W / 8). ``labels``: at least one."""
        return unite_masks([self[label] for label in labels])


def unite_masks(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the union of at least one mask; a single mask is returned as it is."""
    return masks[0] if len(masks) == 1 else np.bitwise_or.reduce(masks)


def view_as_words(packed: np.ndarray) -> np.ndarray:
    """Return packed masks (..., H, W / 8) as 8-byte words if a row is whole words, so that there are fewer elements."""
    return np.ascontiguousarray(packed).view(np.uint64) if packed.shape[-1] % 8 == 0 else packed


def count_pixels(packed: np.ndarray) -> int:
    """Return the number of pixels of a packed mask."""
    return int(np.bitwise_count(view_as_words(packed)).sum())
