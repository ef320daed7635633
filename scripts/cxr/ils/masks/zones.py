"""Zone masks of one image, packed eight pixels per byte as in the shard, and the valid locations that name a mask."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, wraps

import cv2
import numpy as np

from cxr.base.vocabulary import LOBE_ZONES, LUNGS, VALID_LOCATIONS, in_table_order, side_of, zones_of
from cxr.ils.masks.thresholds import exact_fraction


def cached_method(method: Callable) -> Callable:
    """Decorate a method so that each object computes the result for equal arguments only once."""
    name = f"_results_of_{method.__name__}"

    @wraps(method)
    def call(self, *arguments):
        results = self.__dict__.setdefault(name, {})
        if arguments not in results:
            results[arguments] = method(self, *arguments)
        return results[arguments]

    return call


class Zones:
    """Anatomy masks of one image. ``packed``, uint8 (K, H, W / 8), has one mask for each of the K ``labels``."""

    def __init__(self, packed: np.ndarray, labels: Sequence[str]):
        self.packed = packed
        self._row = {label: row for row, label in enumerate(labels)}

    def __getitem__(self, label: str) -> np.ndarray:
        """Return the mask with a label, uint8 packed (H, W / 8)."""
        return self.packed[self._row[label]]

    @cached_method
    def is_empty(self, label: str) -> bool:
        """Return whether the mask with a label has no pixel."""
        return not self[label].any()

    @cached_property
    def _words(self) -> np.ndarray:
        return view_as_words(self.packed)

    @cached_property
    def visible(self) -> frozenset[str]:
        """Valid locations whose mask is not empty."""
        return frozenset(place for place in VALID_LOCATIONS if not self.is_empty(place))

    def find_overlapping(self, mask: np.ndarray) -> frozenset[str]:
        """Return the valid locations that share a pixel with a mask, uint8 packed (H, W / 8)."""
        shared = self._shared(mask).any(axis=(1, 2)).tolist()
        return frozenset(place for place in VALID_LOCATIONS if shared[self._row[place]])

    @cached_method
    def find_overlapping_label(self, label: str) -> frozenset[str]:
        """Return the valid locations that share a pixel with the zone ``label``."""
        return self.find_overlapping(self[label])

    def count_pixels_by_label(self, mask: np.ndarray) -> dict[str, int]:
        """Return {label: number of pixels that its zone shares with a mask, uint8 packed (H, W / 8)}."""
        shared = np.bitwise_count(self._shared(mask)).sum(axis=(1, 2), dtype=np.int64)
        return dict(zip(self._row, shared.tolist(), strict=True))

    def _shared(self, mask: np.ndarray) -> np.ndarray:
        """Return the intersection of each zone with a mask, cropped to the rows that are not empty in the mask."""
        _, top, _, height = cv2.boundingRect(mask)
        some = slice(top, top + height)
        return self._words[:, some] & view_as_words(mask)[some]

    def union(self, labels: Sequence[str]) -> np.ndarray:
        """Return the union of zones, uint8 packed (H, W / 8). ``labels``: at least one."""
        return unite_masks([self[label] for label in labels])


def unite_masks(masks: Sequence[np.ndarray]) -> np.ndarray:
    """Return the union of at least one mask. A single mask is returned without a copy."""
    return masks[0] if len(masks) == 1 else np.bitwise_or.reduce(masks)


def view_as_words(packed: np.ndarray) -> np.ndarray:
    """Return packed masks (..., H, W / 8) as uint64, which is faster, or unchanged if W is no multiple of 64."""
    return np.ascontiguousarray(packed).view(np.uint64) if packed.shape[-1] % 8 == 0 else packed


def count_pixels(packed: np.ndarray) -> int:
    """Return the number of pixels of a packed mask."""
    return int(np.bitwise_count(view_as_words(packed)).sum())


def lung_of(label: str) -> str:
    """Return the lung of a zone label, such as "right lung" for "right lung base"."""
    return f"{side_of(label)} lung"


def ground_labels(
    reported: Iterable[str],
    pixels_by_label: Mapping[str, int],
    area: int,
    meets: Mapping[str, bool],
    *,
    min_px: int,
    min_share: float,
) -> tuple[str, ...]:
    """Return the reported zone labels that a lesion mask confirms (the grounded labels), in their order.

    A label is grounded if its zone meets a productive box (one that adds to the mask) and contains at least ``min_px``
    pixels and the fraction ``min_share`` of the mask. ``pixels_by_label``: pixels of the mask in each zone; ``area``:
    pixels of the mask; ``meets``: whether each zone meets a productive box.
    """
    share = exact_fraction(min_share)
    return tuple(
        label
        for label in reported
        if meets[label] and area > 0 and pixels_by_label[label] >= min_px and pixels_by_label[label] >= share * area
    )


def name_locations(
    labels: Iterable[str],
    pixels_by_label: Mapping[str, int],
    area: int,
    *,
    min_share: float,
    excluded_zones: Iterable[str] = (),
) -> list[str]:
    """Return the valid locations by which to name a mask with the zone ``labels``, in the order of Table 9.

    A lobe is no valid location. Its name is replaced by those of its zones that contain at least the fraction
    ``min_share`` of the mask and are not in ``excluded_zones``. A zone is left out if its whole lung is named.
    """
    share, excluded_zones = exact_fraction(min_share), set(excluded_zones)
    locations: set[str] = set()
    for label in labels:
        if label in VALID_LOCATIONS:
            locations.add(label)
        else:
            zones = [zone for zone in LOBE_ZONES[label] if zone not in excluded_zones]
            locations.update(zone for zone in zones if area > 0 and pixels_by_label[zone] >= share * area)
    return merge_locations(locations)


def merge_locations(locations: Iterable[str]) -> list[str]:
    """Return valid locations in the order of Table 9, without zones whose whole lung is among them."""
    locations = set(locations)
    return in_table_order(place for place in locations if place in LUNGS or lung_of(place) not in locations)


def list_possible_names(label: str) -> tuple[str, ...]:
    """Return the valid locations that may name a zone label: the zones of a lobe, or else the label itself."""
    return LOBE_ZONES.get(label, (label,))


def is_within(location: str, places: Iterable[str]) -> bool:
    """Return whether a valid location, or the lung that contains it, is one of ``places``."""
    return location in places or lung_of(location) in places


def list_related_by_name(label: str) -> set[str]:
    """Return the valid locations that by name contain the zone ``label``, equal it or lie in it, such as its lung."""
    if label in LUNGS:
        return {label, *zones_of(side_of(label))}
    return {lung_of(label), *list_possible_names(label)}
