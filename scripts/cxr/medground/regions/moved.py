"""An image whose every outline lies some pixels further out, or further in."""

from collections.abc import Callable, Mapping

import cv2
import numpy as np

from cxr.geometry.boxes import CORNERS
from cxr.medground.logic.facts import Planes


def moved(row: Mapping, planes: Planes, px: int) -> tuple[dict, Planes]:
    """Return an image's row and planes with the outlines of its masks, instances or boxes ``px`` further out.

    ``px``: negative: further in. A mask is dilated or eroded by a square of 2 ``px`` + 1, inside the picture without
    its padding, whose edge is no outline. An instance grows into what is outside every instance.
    """
    x_min, y_min, x_max, y_max = row["extent"]
    window, square = np.s_[y_min:y_max, x_min:x_max], np.ones((2 * abs(px) + 1,) * 2, np.uint8)

    def inside(plane: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        changed = np.zeros_like(plane)
        changed[window] = change(np.ascontiguousarray(plane[window]))
        return changed

    def mask(plane: np.ndarray) -> np.ndarray:
        pixels = plane.astype(np.uint8)
        return (cv2.dilate(pixels, square) if px > 0 else cv2.erode(pixels, square)) > 0

    def instances(numbers: np.ndarray) -> np.ndarray:
        most = cv2.dilate(numbers, square)
        if px > 0:
            return np.where(numbers > 0, numbers, most)
        return np.where(cv2.erode(numbers, square) == most, numbers, 0).astype(numbers.dtype)

    masks = {label: inside(plane, mask) for label, plane in planes.mask.items()}
    numbers = None if planes.instances is None else inside(planes.instances, instances)
    boxes = row["boxes"] and [_box(box, row["extent"], px) for box in row["boxes"]]
    return dict(row) | {"boxes": boxes}, Planes(planes.picture, masks, numbers, planes.zones)


def _box(box: Mapping, extent: tuple[int, int, int, int], px: int) -> dict:
    """Return a box with its edges ``px`` further out, but inside the picture; an edge at the picture's stays there."""
    shifted_box = dict(box)
    for name, edge, way in zip(CORNERS, extent, (-1, -1, 1, 1), strict=True):
        limit = max if way < 0 else min
        shifted_box[name] = edge if box[name] == edge else limit(box[name] + way * px, edge)
    for low, high in (("x1", "x2"), ("y1", "y2")):
        if shifted_box[high] <= shifted_box[low]:  # nothing is left of it but its middle
            shifted_box[low] = shifted_box[high] = (box[low] + box[high]) / 2
    return shifted_box
