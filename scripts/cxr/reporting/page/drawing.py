"""Draw the page's images, uint8 RGB (H, W, 3), with outlines and numbered boxes."""

import io
from collections.abc import Mapping, Sequence

import cv2
import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from cxr.geometry.boxes import CORNERS
from cxr.plotting.panels import DROPPED_COLOUR, KEPT_COLOUR
from cxr.plotting.plots import BLACK

LOCATION_COLOUR, HALO_COLOUR = "#FFFFFF", BLACK
"""Colours of the outline of reported locations: white with a black halo, which is visible on bone and on lung."""
Rectangle = tuple[int, int, int, int]
"""Corners x1, y1, x2, y2 in pixels."""


def grey_to_rgb(image: np.ndarray, side: int) -> np.ndarray:
    """Return a grey image, uint8 (H, W), as RGB image of ``side`` × ``side`` pixels."""
    small = cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA)
    return np.repeat(small[..., None], 3, axis=2)


def draw_outline(canvas: np.ndarray, mask: np.ndarray, colour: str, *, fill: float = 0.0, width: int = 2) -> None:
    """Draw the outline of a mask, bool (H, W), on a canvas. ``fill`` is the opacity of the shading inside, 0 to 1."""
    small = cv2.resize(mask.astype(np.uint8), canvas.shape[1::-1], interpolation=cv2.INTER_NEAREST)
    rgb = _rgb(colour)
    if fill:
        inside = small.astype(bool)
        canvas[inside] = (canvas[inside] * (1 - fill) + np.array(rgb) * fill).astype(np.uint8)
    edges, _ = cv2.findContours(small, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(canvas, edges, -1, rgb, width)


def draw_boxes(canvas: np.ndarray, rows: Sequence[Mapping], frame: int) -> None:
    """Draw numbered boxes: solid blue if kept, else dashed orange. The first box is drawn last, on top.
    Each of ``rows`` has x1, y1, x2, y2 in pixels of the frame, whose side is ``frame``, and ``number`` and ``kept``."""
    scale = canvas.shape[0] / frame
    corners = [[round(row[name] * scale) for name in CORNERS] for row in rows]
    for row, (x1, y1, x2, y2) in reversed(list(zip(rows, corners, strict=True))):
        rgb = _rgb(KEPT_COLOUR if row["kept"] else DROPPED_COLOUR)
        for start, end in (((x1, y1), (x2, y1)), ((x2, y1), (x2, y2)), ((x2, y2), (x1, y2)), ((x1, y2), (x1, y1))):
            _draw_line(canvas, start, end, rgb, dashed=not row["kept"])
    taken: list[Rectangle] = []
    for row, box in zip(rows, corners, strict=True):
        taken.append(_draw_number(canvas, str(row["number"]), box, row["kept"], taken))


def _draw_line(canvas: np.ndarray, start: tuple[int, int], end: tuple[int, int], rgb: tuple, *, dashed: bool) -> None:
    if not dashed:
        cv2.line(canvas, start, end, rgb, 2)
        return
    (x1, y1), (x2, y2) = start, end
    steps = max(1, round(max(abs(x2 - x1), abs(y2 - y1)) / 6))
    for step in range(0, steps, 2):
        near, far = step / steps, min(1.0, (step + 1) / steps)
        a = (round(x1 + (x2 - x1) * near), round(y1 + (y2 - y1) * near))
        b = (round(x1 + (x2 - x1) * far), round(y1 + (y2 - y1) * far))
        cv2.line(canvas, a, b, rgb, 2)


def _draw_number(
    canvas: np.ndarray, text: str, corners: Sequence[int], is_kept: bool, taken: Sequence[Rectangle]
) -> Rectangle:
    """Write a number at a corner or edge of its box, if possible off the rectangles ``taken``. Return its rectangle."""
    font, size = cv2.FONT_HERSHEY_SIMPLEX, 0.45
    (width, height), _ = cv2.getTextSize(text, font, size, 1)
    width, height = width + 5, height + 5
    x1, y1, x2, y2 = corners
    places = [(x1, y1), (x2 - width, y1), (x1, y2 - height), (x2 - width, y2 - height)]
    places += [(x1 + step, y) for y in (y1, y2 - height) for step in range(0, max(x2 - x1, 1), width + 1)]
    rectangles = []
    for x, y in places:
        x, y = min(max(x, 0), canvas.shape[1] - width), min(max(y, 0), canvas.shape[0] - height)
        rectangles.append((x, y, x + width, y + height))
    free = [rectangle for rectangle in rectangles if not any(_overlap(rectangle, number) for number in taken)]
    rectangle = (free or rectangles)[0]
    cv2.rectangle(canvas, rectangle[:2], rectangle[2:], _rgb(KEPT_COLOUR if is_kept else DROPPED_COLOUR), -1)
    cv2.putText(canvas, text, (rectangle[0] + 3, rectangle[3] - 2), font, size, (0, 0, 0), 1, cv2.LINE_AA)
    return rectangle


def _overlap(first: Rectangle, second: Rectangle) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _rgb(colour: str) -> tuple[int, int, int]:
    return tuple(round(255 * part) for part in to_rgb(colour))


def encode_jpeg(canvas: np.ndarray, quality: int) -> bytes:
    """Return a canvas as JPEG. Equal pixels give equal bytes."""
    buffer = io.BytesIO()
    Image.fromarray(canvas).save(buffer, "JPEG", quality=quality, subsampling=0, optimize=True)
    return buffer.getvalue()
