"""The regions of one image, as arrays: what atoms are evaluated on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class ClassWords:
    """A class in words: singular, plural, wider words (singular to plural); ``ask``: whether queries may name it.

    ``inside``: whether it may be said to lie inside another region.
    """

    one: str
    many: str
    parents: Mapping[str, str] = field(default_factory=dict)
    ask: bool = True
    inside: bool = True


@dataclass(frozen=True)
class Scene:
    """The N regions of an image, candidates and distractors, by their number.

    Arrays (N,): area_ratio (of the picture without padding), area (px), cx and cy (centroid over the side, x to the
    right, y down), elongation, solidity, contrast and texture (NaN: unknown), edge_gap (from the box to the
    nearest edge of the picture, over the side; 0: it touches), candidate (bool). ``shares``:
    (N, Z) share of each region in each zone of ``zones``, or None. ``within``: {(region, other): share of the region's
    pixels inside the other}, None without masks. ``halves``: (left, top, right, bottom) of the picture without its
    padding, over the side. ``classes``: {name: words}. ``open_classes``: classes from which specks over 1 % of the
    pixels were dropped. ``radiological``: whether the image's left is the patient's right; None where there are no
    sides or they are unknown.
    """

    label: Sequence[str]
    area: np.ndarray
    area_ratio: np.ndarray
    cx: np.ndarray
    cy: np.ndarray
    elongation: np.ndarray
    solidity: np.ndarray
    contrast: np.ndarray
    texture: np.ndarray
    edge_gap: np.ndarray
    candidate: np.ndarray
    classes: Mapping[str, ClassWords]
    domain: str = "other"
    radiological: bool | None = None
    zones: Sequence[str] = ()
    shares: np.ndarray | None = None
    within: Mapping[tuple[int, int], float] | None = None
    open_classes: frozenset[str] = frozenset()
    extent: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)

    def __len__(self) -> int:
        return len(self.label)

    def of_class(self, name: str) -> np.ndarray:
        """Return which regions, bool (N,), are of a class or of one that the word ``name`` includes."""
        noun_by_class = self.classes
        return np.array(
            [name in (noun_by_class[label].one, *noun_by_class[label].parents) for label in self.label], bool
        )
