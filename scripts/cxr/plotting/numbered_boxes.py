"""Draw numbered boxes on images, for people and for vision-language models."""

from collections.abc import Mapping, Sequence

import cv2
import numpy as np

SKY, DARK = (86, 180, 233), (20, 20, 20)
"""Colour of unmarked boxes, and background colour of the numbers (red, green, blue)."""
Colour = tuple[int, int, int]


def draw_numbered_boxes(
    image: np.ndarray,
    boxes: Mapping[int, Sequence[float]],
    colours: Mapping[int, Colour],
    side: int,
    *,
    show_numbers: bool,
) -> np.ndarray:
    """Resize an image, uint8 (H, W, 3), to a longer side of ``side`` px, and draw ``boxes`` on it. These are {number:
    (x1, y1, x2, y2)}, px before resizing. Boxes in ``colours``, {number: colour}, get thick lines and are on top."""
    height, width = image.shape[:2]
    scale = side / max(height, width)
    size = (round(width * scale), round(height * scale))
    canvas = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC)
    taken: list[tuple[int, int, int, int]] = []
    corners = {number: [round(edge * scale) for edge in box] for number, box in boxes.items()}
    for number in sorted(boxes, key=lambda number: number in colours):
        x1, y1, x2, y2 = corners[number]
        colour = colours.get(number)
        cv2.rectangle(canvas, (x1, y1), (x2 - 1, y2 - 1), colour or SKY, 3 if colour else 1, cv2.LINE_AA)
    for number in sorted(boxes, key=lambda number: number not in colours) if show_numbers else ():
        _draw_number(canvas, str(number), corners[number], colours.get(number, SKY), taken)
    return canvas


def _draw_number(canvas: np.ndarray, text: str, box: Sequence[int], colour: Colour, taken: list) -> None:
    """Write a number at a corner of its box, inside the image, and if possible without covering another number."""
    (width, height), base = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, 0.5, 1)
    x1, y1, x2, y2 = box
    wide, high = width + 4, height + base + 2
    places = [(x1, y1 - high), (x1, y2), (x2 - wide, y1 - high), (x2 - wide, y2), (x1 - wide, y1), (x2, y1), (x1, y1)]
    rows, columns = canvas.shape[:2]
    clipped = [(min(max(0, x), columns - wide), min(max(0, y), rows - high)) for x, y in places]

    def free(place: tuple[int, int]) -> bool:
        x, y = place
        return not any(x < b[2] and b[0] < x + wide and y < b[3] and b[1] < y + high for b in taken)

    x, y = next(filter(free, clipped), clipped[0])
    taken.append((x, y, x + wide, y + high))
    cv2.rectangle(canvas, (x, y), (x + wide, y + high), DARK, -1)
    place = (x + 2, y + height + 2)
    cv2.putText(canvas, text, place, cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 1, cv2.LINE_AA)
