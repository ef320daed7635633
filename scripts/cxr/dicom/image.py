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
    """One decoded image.

    ``values`` (rows, columns): numbers of any type, after the modality transform. ``valid`` (bool, same shape): False
    for unexposed pixels (padding, transparency); None if all pixels are valid. ``is_inverted``: low values are white
    (MONOCHROME1). ``voi``: function that maps values to 0..1 by the window or table that the file recommends, or None.
    ``voi_note``: why the file's VOI table is ignored. ``turn``: rotation or reflection, from the header, that makes the
    values upright. ``notes``: a clause without patient text for each header field that was corrected or ignored.
    """

    values: np.ndarray
    valid: np.ndarray | None = None
    is_inverted: bool = False
    voi: Callable[[np.ndarray], np.ndarray] | None = None
    voi_note: str = ""
    turn: Turn = UPRIGHT
    notes: list[str] = field(default_factory=list)


def compute_luma(colour: np.ndarray, order: int) -> np.ndarray:
    """Convert a colour image to brightness (rows, columns) by ITU-R BT.601. ``order``: OpenCV's conversion code."""
    if colour.dtype not in (np.uint8, np.uint16):
        colour = colour.astype(np.float32)
    return cv2.cvtColor(np.ascontiguousarray(colour), order)


def check_area(rows: int, columns: int) -> None:
    """Raise :class:`Rejected` if an image has no pixels or more than :data:`MAX_PIXELS`."""
    if rows < 1 or columns < 1:
        raise Rejected("undecodable", f"{rows} x {columns} pixels")
    if rows * columns > MAX_PIXELS:
        raise Rejected("undecodable", f"{rows} x {columns} pixels, more than {MAX_PIXELS}")
