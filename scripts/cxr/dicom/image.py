"""The output of a decoder: pixel values, and the information needed to convert them to grey levels."""

from collections.abc import Callable
from dataclasses import dataclass, field

import cv2
import numpy as np

from cxr.dicom.files import Rejected
from cxr.geometry.turns import UPRIGHT, Turn

MAX_PIXELS = 100_000_000  # maximum number of pixels of an image that is decoded; detectors have up to 20 million


@dataclass(slots=True)
class DecodedImage:
    """One decoded image: pixel values, and what is needed to convert them to grey levels."""

    values: np.ndarray  # (rows, columns), numbers of any type, after the modality transform
    valid: np.ndarray | None = None  # bool (rows, columns), False for padding and transparent pixels; None: all valid
    is_inverted: bool = False  # whether low values are white (MONOCHROME1)
    voi: Callable[[np.ndarray], np.ndarray] | None = None  # maps values to 0..1 by the file's VOI window or table
    voi_note: str = ""  # why the file's VOI table is ignored
    turn: Turn = UPRIGHT  # rotation or reflection, by the header, that makes the values upright
    notes: list[str] = field(default_factory=list)  # a clause per corrected or ignored field, without patient text


def compute_luma(colour: np.ndarray, order: int) -> np.ndarray:
    """Convert a colour image to brightness (rows, columns) by ITU-R BT.601. ``order``: such as cv2.COLOR_RGB2GRAY."""
    if colour.dtype not in (np.uint8, np.uint16):
        colour = colour.astype(np.float32)
    return cv2.cvtColor(np.ascontiguousarray(colour), order)


def check_area(rows: int, columns: int) -> None:
    """Raise :class:`Rejected` if an image has no pixels or more than :data:`MAX_PIXELS`."""
    if rows < 1 or columns < 1:
        raise Rejected("undecodable", f"{rows} x {columns} pixels")
    if rows * columns > MAX_PIXELS:
        raise Rejected("undecodable", f"{rows} x {columns} pixels, more than the {MAX_PIXELS} allowed")
