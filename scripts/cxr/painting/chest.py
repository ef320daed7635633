"""Input and output of the painters: a chest X-ray, the places, the request, and the painted image, of any size."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import cv2
import numpy as np

from cxr.geometry.boxes import bounding_box, clip_boxes

MEDIAL = 12
"""Width of the band inside a lung's medial border in which a lesion fades out, px of 512: the border lies behind the
heart and the great vessels, where no edge is visible."""
RIM = 3  # width of the band around a lung in which a lesion fades out, px


@dataclass(frozen=True)
class Chest:
    """A frontal X-ray, float32 (H, W) in 0..1, bright = dense, with its organs, bool (H, W), by the patient's sides."""

    image: np.ndarray
    right: np.ndarray
    left: np.ndarray
    heart: np.ndarray

    def lung(self, side: str) -> np.ndarray:
        """Return the lung of a side, bool (H, W)."""
        return self.right if side == "right" else self.left

    @property
    def lungs(self) -> np.ndarray:
        """Both lungs, bool (H, W)."""
        return self.right | self.left


@dataclass(frozen=True)
class Place:
    """Requested place of a lesion: a box (x1, y1, x2, y2) in pixels and the side of its lung."""

    box: tuple[float, float, float, float]
    side: str


@dataclass(frozen=True)
class PaintRequest:
    """What to paint: the places, the prompt's words, the cardiothoracic ratio to reach, and the painter's ranges {name:
    (low, high) or a number}. ``measure``: returns the cardiothoracic ratio of an image."""

    places: tuple[Place, ...]
    words: str = ""
    ratio: float | None = None
    ranges: dict = field(default_factory=dict)
    measure: Callable[[np.ndarray], float] | None = None

    def mentions(self, *words: str) -> bool:
        """True if the prompt contains one of the words."""
        return any(word in self.words.lower() for word in words)

    def draw(self, name: str, random: np.random.Generator) -> float:
        """Draw a number uniformly from a range."""
        return float(random.uniform(*self.ranges[name]))

    def draw_count(self, name: str, random: np.random.Generator) -> int:
        """Draw an integer uniformly from a range, both ends included."""
        low, high = self.ranges[name]
        return int(random.integers(low, high + 1))


@dataclass(frozen=True)
class PaintedImage:
    """A painted image float32 (H, W) in 0..1, its lesion bool (H, W), and the parameters that were drawn."""

    image: np.ndarray
    lesion: np.ndarray
    parameters: dict


def window_mask(chest: Chest, windows: Iterable["Window"]) -> np.ndarray:
    """Return the pixels that lie in one of the windows, bool (H, W)."""
    mask = np.zeros(chest.image.shape, bool)
    for window in windows:
        mask[window.at] = True
    return mask


class Window:
    """The crop of an X-ray around a place, and the lung in it. ``box``: tight box of the lung within the place,
    ``place_box``: the place itself, both in pixels of the crop; ``empty``: whether the place misses the lung."""

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
        """Return (u, v), float32 (h, w): -1..1 from side to side of ``box``; v grows downwards. A side along which the
        lung ends first moves outwards by up to ``beyond`` half sizes: a lesion is dense up to that border."""
        x1, y1, x2, y2 = self.box
        wide, tall = beyond * (x2 - x1) / 2, beyond * (y2 - y1) / 2
        left_share, top_share, right_share, bottom_share = self.lung_border_shares()
        x1, x2 = x1 - wide * left_share, x2 + wide * right_share
        y1, y2 = y1 - tall * top_share, y2 + tall * bottom_share
        y, x = np.mgrid[: self.shape[0], : self.shape[1]].astype(np.float32) + 0.5
        return (2 * x - x1 - x2) / max(1, x2 - x1), (2 * y - y1 - y2) / max(1, y2 - y1)

    def lung_border_shares(self) -> tuple[float, float, float, float]:
        """Return for each side of ``box`` (left, top, right, bottom) the fraction along which the lung ends there."""
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
        """Return weights float32 (h, w): 1 inside, falling to 0 over ``soft`` half sizes and at the lung."""
        x1, y1, x2, y2 = self.place_box
        y, x = np.mgrid[: self.shape[0], : self.shape[1]].astype(np.float32) + 0.5
        across, along = np.minimum(x - x1, x2 - x) / (x2 - x1), np.minimum(y - y1, y2 - y) / (y2 - y1)
        box = (smoothstep(np.clip(2 * np.minimum(across, along) / soft, 0, 1)) * self.inside).astype(np.float32)
        return (self.rim_weights() * box * self.medial_fade_weights()).astype(np.float32)

    def rim_weights(self) -> np.ndarray:
        """Return weights (h, w): 1 in the lung, falling to 0 within :data:`RIM` pixels outside."""
        outside = cv2.distanceTransform((~self.lung).astype(np.uint8), cv2.DIST_L2, 5)
        return np.where(outside <= RIM, 1 - outside / (RIM + 1), 0)

    def medial_fade_weights(self) -> np.ndarray:
        """Return weights float32 (h, w): 1 in the lung, falling to 0 within :data:`MEDIAL` px of its medial border."""
        lung = self.lung if self.lateral > 0 else self.lung[:, ::-1]
        reached = np.maximum.accumulate(lung, axis=1)
        beyond = np.where(lung.any(axis=1)[:, None], ~reached, False)
        beyond = beyond if self.lateral > 0 else beyond[:, ::-1]
        beyond = beyond & ~np.logical_or.accumulate(self.lung, axis=0)  # under the lung is the diaphragm
        if not beyond.any():
            return np.ones(self.shape, np.float32)
        distance = cv2.distanceTransform((~beyond).astype(np.uint8), cv2.DIST_L2, 5)
        return np.clip(distance / MEDIAL, 0, 1).astype(np.float32)


def smoothstep(t: np.ndarray) -> np.ndarray:
    """Return the smooth step of values in 0..1."""
    return t * t * (3 - 2 * t)


def soft_step(value: np.ndarray, width: float) -> np.ndarray:
    """Return a smooth step from 0 to 1 around the value 0, ``width`` wide, float32."""
    return smoothstep(np.clip(np.asarray(value, np.float32) / max(width, 1e-6) + 0.5, 0, 1)).astype(np.float32)
