"""Draw outlines of masks and numbered boxes directly on frames, uint8 RGB (H, W, 3)."""

import io
from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from cxr.geometry.boxes import CORNERS
from cxr.plotting.palette import DROPPED, KEPT
from cxr.plotting.plots import BLACK

PLACE, HALO = "#FFFFFF", BLACK
"""Reported locations are white on black. No lesion type has these colours, and they are visible on bone and lung."""


def grey(image: np.ndarray, side: int) -> np.ndarray:
    """Return a frame (uint8 (H, W)) as RGB of ``side`` pixels."""
    small = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    return np.repeat(small[..., None], 3, axis=2)


def outline(picture: np.ndarray, mask: np.ndarray, colour: str, *, fill: float = 0.0, width: int = 2) -> None:
    """Draw the outline of a mask (bool (H, W) of the frame) into a picture, and shade its inside by ``fill``."""
    side = picture.shape[0]
    small = cv2.resize(mask.astype(np.uint8), (side, side), interpolation=cv2.INTER_NEAREST)
    rgb = _rgb(colour)
    if fill:
        inside = small.astype(bool)
        picture[inside] = (picture[inside] * (1 - fill) + np.array(rgb) * fill).astype(np.uint8)
    edges, _ = cv2.findContours(small, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(picture, edges, -1, rgb, width)


def boxes(picture: np.ndarray, rows: Sequence[Mapping], frame: int) -> None:
    """Draw boxes with their ``number``: blue and whole if ``kept``, else orange and dashed.

    ``rows`` have x1, y1, x2, y2 in pixels of a frame of ``frame`` pixels, number, kept. They are drawn in reverse
    order.
    """
    scale = picture.shape[0] / frame
    for row in reversed(rows):
        x1, y1, x2, y2 = (round(row[name] * scale) for name in CORNERS)
        rgb = _rgb(KEPT if row["kept"] else DROPPED)
        for start, end in (((x1, y1), (x2, y1)), ((x2, y1), (x2, y2)), ((x2, y2), (x1, y2)), ((x1, y2), (x1, y1))):
            _line(picture, start, end, rgb, dashed=not row["kept"])
    taken: list[tuple[int, int, int, int]] = []
    for row in rows:
        corners = [round(row[name] * scale) for name in CORNERS]
        taken.append(_label(picture, str(row["number"]), corners, row["kept"], taken))


def _line(picture: np.ndarray, start: tuple[int, int], end: tuple[int, int], rgb: tuple, *, dashed: bool) -> None:
    if not dashed:
        cv2.line(picture, start, end, rgb, 2)
        return
    (x1, y1), (x2, y2) = start, end
    steps = max(1, round(max(abs(x2 - x1), abs(y2 - y1)) / 6))
    for step in range(0, steps, 2):
        near, far = step / steps, min(1.0, (step + 1) / steps)
        a = (round(x1 + (x2 - x1) * near), round(y1 + (y2 - y1) * near))
        b = (round(x1 + (x2 - x1) * far), round(y1 + (y2 - y1) * far))
        cv2.line(picture, a, b, rgb, 2)


def _label(
    picture: np.ndarray, text: str, corners: Sequence[int], is_kept: bool, taken: Sequence[tuple[int, int, int, int]]
) -> tuple[int, int, int, int]:
    """Write a box's number at its first corner, or along its edges, where there is no other number.

    Returns the rectangle (x1, y1, x2, y2) that it takes.
    """
    font, size = cv2.FONT_HERSHEY_SIMPLEX, 0.45
    (width, height), _ = cv2.getTextSize(text, font, size, 1)
    width, height = width + 5, height + 5
    x1, y1, x2, y2 = corners
    steps = range(0, max(x2 - x1, 1), width + 1)
    places = [(x1, y1), (x2 - width, y1), (x1, y2 - height), (x2 - width, y2 - height)]
    places += [(x1 + step, y) for y in (y1, y2 - height) for step in steps]
    rectangles = [_inside(picture, x, y, width, height) for x, y in places]
    label_rectangle = next(
        (
            rectangle
            for rectangle in rectangles
            if not any(_meet(rectangle, taken_rectangle) for taken_rectangle in taken)
        ),
        rectangles[0],
    )
    cv2.rectangle(picture, label_rectangle[:2], label_rectangle[2:], _rgb(KEPT if is_kept else DROPPED), -1)
    cv2.putText(picture, text, (label_rectangle[0] + 3, label_rectangle[3] - 2), font, size, (0, 0, 0), 1, cv2.LINE_AA)
    return label_rectangle


def _inside(picture: np.ndarray, x: int, y: int, width: int, height: int) -> tuple[int, int, int, int]:
    x, y = min(max(x, 0), picture.shape[1] - width), min(max(y, 0), picture.shape[0] - height)
    return x, y, x + width, y + height


def _meet(first: tuple[int, int, int, int], second: tuple[int, int, int, int]) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _rgb(colour: str) -> tuple[int, int, int]:
    return tuple(round(255 * part) for part in to_rgb(colour))


def jpeg(picture: np.ndarray, quality: int) -> bytes:
    """Return a picture as JPEG, the same bytes for the same picture."""
    buffer = io.BytesIO()
    Image.fromarray(picture).save(buffer, "JPEG", quality=quality, subsampling=0, optimize=True)
    return buffer.getvalue()
