"""The image that each source's reader yields, its tiles, and its fitting to the source's frame."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import cv2
import numpy as np

PERCENTILES = (0.1, 99.9)
"""Percentiles that become 0 and 255 in images of more than 8 bits."""


class Refused(Exception):
    """An image is excluded. ``reason``: a code of :data:`cxr.base.exclusions.REASONS`."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason)
        self.reason, self.detail = reason, detail


@dataclass(frozen=True)
class Image:
    """One image with its annotation.

    picture: uint8 (H, W) or (H, W, 3); masks: {class: bool (H, W)}; instances: uint16 (H, W), 0 outside, or None;
    boxes: {class: float (N, 4: x1, y1, x2, y2)}, for a source without masks; path: the image file. Radiographs, already
    in the frame: zones and organs {name: bool (S, S)}, anomaly: uint8 (S, S), grey levels, or None; anatomy: their
    state (:mod:`cxr.medground.sources.ils`). inner: which edges (left, top, right, bottom) were cut from a
    larger image; extent: the image without padding (x1, y1, x2, y2); to_original: affine (2, 3) from these pixels to
    the original ones, pixel centres at .5.
    """

    image_id: str
    subject_id: str
    split: str
    picture: np.ndarray
    masks: Mapping[str, np.ndarray] = field(default_factory=dict)
    instances: np.ndarray | None = None
    boxes: Mapping[str, np.ndarray] | None = None
    path: str = ""
    zones: Mapping[str, np.ndarray] = field(default_factory=dict)
    organs: Mapping[str, np.ndarray] = field(default_factory=dict)
    anomaly: np.ndarray | None = None
    anatomy: str = "none"
    domain: str = "other"
    licence: str = ""
    description: str = ""
    inner: tuple[bool, bool, bool, bool] = (False, False, False, False)
    to_original: np.ndarray = field(default_factory=lambda: np.eye(2, 3))
    extent: tuple[int, int, int, int] = (0, 0, 0, 0)


def to_grey8(values: np.ndarray) -> np.ndarray:
    """Return an image as uint8; with more than 8 bits, its 0.1 and 99.9 percentiles become 0 and 255."""
    if values.dtype == np.uint8:
        return values
    low, high = np.percentile(values, PERCENTILES)
    scaled = (values.astype(np.float64) - low) / max(float(high - low), 1e-9)
    return np.round(np.clip(scaled, 0, 1) * 255).astype(np.uint8)


def cut_tiles(image: Image, side: int) -> list[Image]:
    """Return the complete tiles of an image, row by row; incomplete ones at the right and lower edges are dropped."""
    height, width = image.picture.shape[:2]
    rows, columns = max(1, height // side), max(1, width // side)
    tile_images = []
    for row, column in itertools.product(range(rows), range(columns)):
        y_min, x_min = row * side, column * side
        y_max, x_max = min(y_min + side, height), min(x_min + side, width)
        cut, shift = np.s_[y_min:y_max, x_min:x_max], image.to_original.copy()
        shift[:, 2] += shift[:, :2] @ (x_min, y_min)
        tile = replace(
            image,
            image_id=f"{image.image_id}_r{row}c{column}",
            picture=image.picture[cut],
            masks={name: mask[cut] for name, mask in image.masks.items()},
            instances=None if image.instances is None else image.instances[cut],
            inner=(x_min > 0, y_min > 0, x_max < width, y_max < height),
            description="" if rows * columns > 1 else image.description,  # it is of the whole picture
            to_original=shift,
        )
        tile_images.append(tile)
    return tile_images


def pad_tile(tile: Image, side: int) -> Image:
    """Return a tile in its frame, unscaled, at the upper left corner."""
    height, width = tile.picture.shape[:2]
    grow = ((0, side - height), (0, side - width))
    return replace(
        tile,
        picture=np.pad(tile.picture, (*grow, (0, 0))),
        masks={name: np.pad(mask, grow) for name, mask in tile.masks.items()},
        instances=None if tile.instances is None else np.pad(tile.instances, grow),
        extent=(0, 0, width, height),
    )


def fit_to_frame(image: Image, side: int) -> Image:
    """Return an image in a square frame, padded to the centre, with its ``extent`` there."""
    height, width = image.picture.shape[:2]
    scale = side / max(height, width)
    new = (max(1, round(width * scale)), max(1, round(height * scale)))
    x_min, y_min = (side - new[0]) // 2, (side - new[1]) // 2

    def placed(plane: np.ndarray, interpolation: int) -> np.ndarray:
        small = plane if plane.shape[:2] == (new[1], new[0]) else cv2.resize(plane, new, interpolation=interpolation)
        frame = np.zeros((side, side, *plane.shape[2:]), plane.dtype)
        frame[y_min : y_min + new[1], x_min : x_min + new[0]] = small
        return frame

    smooth = cv2.INTER_AREA if new[0] < width else cv2.INTER_LINEAR
    exact = cv2.INTER_NEAREST_EXACT
    scale = np.array([width / new[0], height / new[1]])
    shift = np.concatenate([np.diag(scale), -scale[:, None] * np.array([[x_min], [y_min]])], axis=1)
    boxes = image.boxes
    if boxes is not None:
        move = np.array([x_min, y_min, x_min, y_min])
        boxes = {name: corners / np.tile(scale, 2) + move for name, corners in boxes.items()}
    affine = np.concatenate([shift, [[0, 0, 1]]])
    return replace(
        image,
        picture=placed(image.picture, smooth),
        masks={name: placed(mask.astype(np.uint8), exact) > 0 for name, mask in image.masks.items()},
        instances=None if image.instances is None else placed(image.instances, exact),
        boxes=boxes,
        to_original=image.to_original @ affine,
        extent=(x_min, y_min, x_min + new[0], y_min + new[1]),
    )
