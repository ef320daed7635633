"""The result of a decoder: pixel values, and the information that maps them to grey levels."""

from collections.abc import Callable
from dataclasses import dataclass, field

import cv2
import numpy as np

from cxr.dicom.files import Rejected
from cxr.geometry.turns import UPRIGHT, Turn


@dataclass(slots=True)
class Picture:
    """One decoded image.

    ``values`` (rows, columns): numbers of any type, after the modality transform. ``valid`` (bool, same shape): False
    for unexposed pixels (padding, transparency); None if all are valid. ``inverted``: low values are white
    (MONOCHROME1). ``voi``: maps values to 0..1 by the file's recommended window or table; None without one.
    ``voi_note``: why a table of the file is not used for it. ``turn``: how the values become upright, where a header
    tells it. ``notes``: what was corrected or ignored in the header, each in a clause without patient text.
    """

    values: np.ndarray
    valid: np.ndarray | None = None
    inverted: bool = False
    voi: Callable[[np.ndarray], np.ndarray] | None = None
    voi_note: str = ""
    turn: Turn = UPRIGHT
    notes: list[str] = field(default_factory=list)


def luma(colour: np.ndarray, order: int) -> np.ndarray:
    """Return (rows, columns) brightness (ITU-R BT.601) of a three-channel image; ``order`` is OpenCV's conversion."""
    if colour.dtype not in (np.uint8, np.uint16):
        colour = colour.astype(np.float32)
    return cv2.cvtColor(np.ascontiguousarray(colour), order)


def check_area(rows: int, columns: int, max_pixels: int) -> None:
    """Raise :class:`Rejected` for an image without pixels, or with so many that decoding it is unsafe."""
    if rows < 1 or columns < 1:
        raise Rejected("undecodable", f"{rows} x {columns} pixels")
    if rows * columns > max_pixels:
        raise Rejected("undecodable", f"{rows} x {columns} pixels, more than frames.max_pixels")
