"""Input and output of the painters: a chest X-ray of any size, the request with its places, and the painted image."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box, clip_boxes

MEDIAL = 12
"""Width of the band inside a lung's medial border in which a lesion fades out, px at 512 x 512. The heart and the great
vessels hide the border, so no edge of a lesion must be visible there."""
RIM = 3  # width of the band outside a lung in which a lesion fades out, px


@dataclass(frozen=True)
class Chest:
    """A frontal X-ray, float32 (H, W) in 0..1 with dense tissue bright, and the masks of its organs, bool (H, W).
    ``right`` and ``left`` are the patient's sides."""

    image: np.ndarray
    right: np.ndarray
    left: np.ndarray
    heart: np.ndarray

    def lung(self, side: str) -> np.ndarray:
        """Return the mask of the lung on the patient's ``side``, "right" or "left", bool (H, W)."""
        return self.right if side == "right" else self.left

    @property
    def lungs(self) -> np.ndarray:
        """Mask of both lungs, bool (H, W)."""
        return self.right | self.left


@dataclass(frozen=True)
class Place:
    """The place where a lesion is requested: a box (x1, y1, x2, y2) in pixels, and the lung, "right" or "left"."""

    box: tuple[float, float, float, float]
    side: str


@dataclass(frozen=True)
class PaintRequest:
    """A request to a painter. ``words`` is the text of the prompt, and ``ratio`` the requested cardiothoracic ratio.
    ``ranges`` has the painter's parameters, {name: (low, high) to sample from, or a fixed number}. ``measure`` is a
    function that returns the cardiothoracic ratio of an image."""

    places: tuple[Place, ...]
    words: str = ""
    ratio: float | None = None
    ranges: dict = field(default_factory=dict)
    measure: Callable[[np.ndarray], float] | None = None

    def mentions(self, *words: str) -> bool:
        """Return whether the prompt contains one of the words."""
        return any(word in self.words.lower() for word in words)

    def draw(self, name: str, random: np.random.Generator) -> float:
        """Sample a number uniformly from the range ``name``."""
        return float(random.uniform(*self.ranges[name]))

    def draw_count(self, name: str, random: np.random.Generator) -> int:
        """Sample an integer uniformly from the range ``name``, both ends included."""
        low, high = self.ranges[name]
        return int(random.integers(low, high + 1))


@dataclass(frozen=True)
class PaintedImage:
    """A painted image, float32 (H, W) in 0..1, the mask of its lesion, bool (H, W), and the sampled parameters."""

    image: np.ndarray
    lesion: np.ndarray
    parameters: dict


def window_mask(chest: Chest, windows: Iterable["Window"]) -> np.ndarray:
    """Return a mask, bool (H, W), that is True for the pixels in at least one of the windows."""
    mask = np.zeros(chest.image.shape, bool)
    for window in windows:
        mask[window.at] = True
    return mask


class Window:
    """Crop of an X-ray around a place, with a margin. Its boxes and arrays (h, w) are in pixels of the crop.
    ``place_box``: box of the place. ``box``: bounding box of the lung in it. ``empty``: whether it has no lung."""

    def __init__(self, chest: Chest, place: Place, margin: int = 2 * RIM):
        shape = chest.image.shape
        x1, y1, x2, y2 = clip_boxes(np.array(place.box), *shape)[0]
        inside = np.zeros(shape, bool)
        inside[y1:y2, x1:x2] = True
        lung = chest.lung(place.side)
        self.empty = not (inside & lung).any()
        self.rows = slice(max(0, y1 - margin), min(shape[0], y2 + margin))
        self.columns = slice(max(0, x1 - margin), min(shape[1], x2 + margin))
        self.at = self.rows, self.columns
        self.lung, self.inside = lung[self.at], inside[self.at]
        self.image, self.heart = chest.image[self.at], chest.heart[self.at]
        self.shape = self.lung.shape
        self.box = bounding_box(self.lung & self.inside)
        self.place_box = bounding_box(self.inside)
        self.lateral = -1 if place.side == "right" else 1  # direction of the chest wall along x

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of ``box``, px."""
        return self.box[2] - self.box[0], self.box[3] - self.box[1]

    @property
    def reach(self) -> float:
        """Side of the square with the area of ``box``, px."""
        return float(np.sqrt(max(1, self.size[0] * self.size[1])))

    def box_coordinates(self, beyond: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """Return the coordinates (u, v) of each pixel, float32 (h, w) each. They run from -1 to 1 between the sides of
        ``box``, to the right and downwards. Sides where the lung ends are first moved outwards by up to ``beyond`` half
        box sizes, so that lesions are dense up to the lung's border."""
        x1, y1, x2, y2 = self.box
        wide, tall = beyond * (x2 - x1) / 2, beyond * (y2 - y1) / 2
        left_share, top_share, right_share, bottom_share = self.lung_border_shares()
        x1, x2 = x1 - wide * left_share, x2 + wide * right_share
        y1, y2 = y1 - tall * top_share, y2 + tall * bottom_share
        y, x = np.mgrid[: self.shape[0], : self.shape[1]].astype(np.float32) + 0.5
        return (2 * x - x1 - x2) / max(1, x2 - x1), (2 * y - y1 - y2) / max(1, y2 - y1)

    def lung_border_shares(self) -> tuple[float, float, float, float]:
        """Return, for the left, top, right and bottom side of ``box``, the fraction of the side, 0..1, along which the
        lung ends. Along the remaining fraction, the box cuts through the lung."""
        x1, y1, x2, y2 = self.box
        part = self.lung[y1:y2, x1:x2]
        shares = []
        for side, (axis, first) in enumerate(((1, True), (0, True), (1, False), (0, False))):
            lines, size = part.any(axis=axis), part.shape[axis]
            at = (part if first else np.flip(part, axis)).argmax(axis=axis)
            near = (at > 0) | (self.place_box[side] != self.box[side])
            shares.append(float((near & (at < 0.5 * size))[lines].mean()) if lines.any() else 0.0)
        return tuple(shares)

    def fade_weights(self, soft: float = 0.12) -> np.ndarray:
        """Return weights for a lesion's density, float32 (h, w): 1 in the part of the lung inside the place, 0 outside.
        They fall gradually at the lung's border, and at the sides of the place over ``soft`` half box sizes."""
        x1, y1, x2, y2 = self.place_box
        y, x = np.mgrid[: self.shape[0], : self.shape[1]].astype(np.float32) + 0.5
        across, along = np.minimum(x - x1, x2 - x) / (x2 - x1), np.minimum(y - y1, y2 - y) / (y2 - y1)
        box = (smoothstep(np.clip(2 * np.minimum(across, along) / soft, 0, 1)) * self.inside).astype(np.float32)
        return (self.rim_weights() * box * self.medial_fade_weights()).astype(np.float32)

    def rim_weights(self) -> np.ndarray:
        """Return weights, float (h, w): 1 in the lung, falling to 0 within :data:`RIM` px outside the lung."""
        outside = cv2.distanceTransform((~self.lung).astype(np.uint8), cv2.DIST_L2, 5)
        return np.where(outside <= RIM, 1 - outside / (RIM + 1), 0)

    def medial_fade_weights(self) -> np.ndarray:
        """Return weights, float32 (h, w): 0 at the lung's medial border, 1 from :data:`MEDIAL` px inside it."""
        lung = self.lung if self.lateral > 0 else self.lung[:, ::-1]
        reached = np.maximum.accumulate(lung, axis=1)
        beyond = np.where(lung.any(axis=1)[:, None], ~reached, False)
        beyond = beyond if self.lateral > 0 else beyond[:, ::-1]
        beyond = beyond & ~np.logical_or.accumulate(self.lung, axis=0)  # below the lung is the diaphragm
        if not beyond.any():
            return np.ones(self.shape, np.float32)
        distance = cv2.distanceTransform((~beyond).astype(np.uint8), cv2.DIST_L2, 5)
        return np.clip(distance / MEDIAL, 0, 1).astype(np.float32)


def smoothstep(t: np.ndarray) -> np.ndarray:
    """Return the smooth step 3 t^2 - 2 t^3, which rises from 0 to 1, for values ``t`` in 0..1."""
    return t * t * (3 - 2 * t)


def soft_step(value: np.ndarray, width: float) -> np.ndarray:
    """Map values to 0..1 by a smooth step, which is centred on the value 0 and ``width`` wide; return float32."""
    return smoothstep(np.clip(np.asarray(value, np.float32) / max(width, 1e-6) + 0.5, 0, 1)).astype(np.float32)
