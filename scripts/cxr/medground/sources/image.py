"""The image that a source's reader returns, its division into tiles, and its fitting to the source's square frame."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import cv2
import numpy as np

PERCENTILES = (0.1, 99.9)  # percentiles that become 0 and 255 in images of more than 8 bits


@dataclass(frozen=True)
class Image:
    """One image with its annotation. The image has (H, W) pixels, and the source's frame has (S, S).

    ``picture``: uint8 (H, W) or (H, W, 3). ``masks``: {class: bool (H, W)}. ``instances``: number of the instance at
    each pixel, uint16 (H, W), 0 outside, or None. ``boxes``: {class: float (N, 4: x1, y1, x2, y2)} of a source without
    masks. ``path``: the image file. ``inner``: whether each edge (left, top, right, bottom) was cut from a larger
    image. ``extent``: box (x1, y1, x2, y2) of the image without padding. ``to_original``: affine (2, 3) from these
    pixels to the original ones, with pixel centres at .5. Radiographs also have, in the frame, ``zones`` and
    ``organs``, {name: bool (S, S)}, and ``anomaly``, the anomaly map, uint8 (S, S), or None. ``anatomy`` is the state
    of these three (:mod:`cxr.medground.sources.ils`)."""

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


ImageReader = Callable[[], Image]  # reads one image, or raises Rejected with the reason to exclude the image


def to_grey8(values: np.ndarray) -> np.ndarray:
    """Return an image as uint8. If it has more than 8 bits, its 0.1 and 99.9 percentiles become 0 and 255."""
    if values.dtype == np.uint8:
        return values
    low, high = np.percentile(values, PERCENTILES)
    scaled = (values.astype(np.float64) - low) / max(float(high - low), 1e-9)
    return np.round(np.clip(scaled, 0, 1) * 255).astype(np.uint8)


def cut_tiles(image: Image, side: int) -> list[Image]:
    """Return the complete tiles of ``side`` × ``side`` pixels, row by row. Incomplete tiles at the right and lower
    edges are dropped. An image smaller than a tile becomes one tile."""
    height, width = image.picture.shape[:2]
    rows, columns = max(1, height // side), max(1, width // side)

    def tile(row: int, column: int) -> Image:
        y_min, x_min = row * side, column * side
        y_max, x_max = min(y_min + side, height), min(x_min + side, width)
        cut, to_original = np.s_[y_min:y_max, x_min:x_max], image.to_original.copy()
        to_original[:, 2] += to_original[:, :2] @ (x_min, y_min)
        return replace(
            image,
            image_id=f"{image.image_id}_r{row}c{column}",
            picture=image.picture[cut],
            masks={name: mask[cut] for name, mask in image.masks.items()},
            instances=None if image.instances is None else image.instances[cut],
            inner=(x_min > 0, y_min > 0, x_max < width, y_max < height),
            description="" if rows * columns > 1 else image.description,  # describes the complete image
            to_original=to_original,
        )

    return [tile(row, column) for row in range(rows) for column in range(columns)]


def fit_to_frame(image: Image, side: int, *, is_tile: bool = False) -> Image:
    """Return the image in a square frame of ``side`` × ``side`` pixels, with its ``extent``. A whole image is scaled
    and centred. A tile keeps its scale and is placed at the upper left."""
    height, width = image.picture.shape[:2]
    scale = side / max(height, width)
    new = (width, height) if is_tile else (max(1, round(width * scale)), max(1, round(height * scale)))
    x_min, y_min = (0, 0) if is_tile else ((side - new[0]) // 2, (side - new[1]) // 2)

    def placed(plane: np.ndarray, interpolation: int) -> np.ndarray:
        small = plane if plane.shape[:2] == (new[1], new[0]) else cv2.resize(plane, new, interpolation=interpolation)
        frame = np.zeros((side, side, *plane.shape[2:]), plane.dtype)
        frame[y_min : y_min + new[1], x_min : x_min + new[0]] = small
        return frame

    smooth, exact = cv2.INTER_AREA if new[0] < width else cv2.INTER_LINEAR, cv2.INTER_NEAREST_EXACT
    scale, corner = np.array([width / new[0], height / new[1]]), np.array([x_min, y_min])
    affine = np.vstack([np.column_stack([np.diag(scale), -scale * corner]), [0, 0, 1]])
    boxes = {name: box / np.tile(scale, 2) + np.tile(corner, 2) for name, box in (image.boxes or {}).items()}
    return replace(
        image,
        picture=placed(image.picture, smooth),
        masks={name: placed(mask.astype(np.uint8), exact) > 0 for name, mask in image.masks.items()},
        instances=None if image.instances is None else placed(image.instances, exact),
        boxes=boxes or image.boxes,
        to_original=image.to_original @ affine,
        extent=(x_min, y_min, x_min + new[0], y_min + new[1]),
    )
