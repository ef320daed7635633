"""Decoding an image file to 8-bit grey levels at its original resolution, and making the 512 x 512 frame from them."""

from collections.abc import Mapping
from dataclasses import dataclass

import cv2
import numpy as np

from cxr.base.errors import StoreError
from cxr.base.hdf5 import FRAME_SIZE
from cxr.dicom.decode import decode_file
from cxr.dicom.files import Rejected
from cxr.dicom.image import DecodedImage
from cxr.geometry.affine import affine_to_stored, fit_affine, to_frame
from cxr.geometry.turns import Turn
from cxr.imaging.frames.burned_in import clean_image, describe_blackout

SPIKE_SHARE, SPIKE_RANGE = 0.001, 0.5
"""A warning is logged if less than ``SPIKE_SHARE`` of the pixels use more than ``SPIKE_RANGE`` of the grey range."""


def _scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    if values.dtype.kind in "iu" and values.dtype.itemsize <= 2:
        limits = np.iinfo(values.dtype)
        grid = np.arange(limits.min, limits.max + 1, dtype=np.float64)
        table = np.rint(np.clip((grid - low) / (high - low), 0, 1) * 255).astype(np.uint8)
        return table[values if limits.min == 0 else values.astype(np.int32) - limits.min]
    share = (values.astype(np.float64) - low) / (high - low)
    return np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8)


def to_grey(picture: DecodedImage, method: str, percentiles: list[float]) -> np.ndarray:
    """Convert an image to uint8 (rows, columns) with white bone and padding 0. Raises Rejected if it is constant.

    ``method``: ``minmax`` maps the range of the values outside the padding to 0..255. ``percentile`` maps the range
    between two percentiles. ``voi`` applies the file's window or table, or ``minmax`` if the result would be constant.
    """
    values, valid = picture.values, picture.valid
    exposed = values if valid is None else values[valid]
    low, high = float(exposed.min()), float(exposed.max())
    if low == high:
        raise Rejected("constant_image")
    if method == "voi" and picture.voi_note:
        picture.notes.append(picture.voi_note)
    if method == "voi" and picture.voi is not None:
        displayed_values = picture.voi(values)
        if np.ptp(displayed_values if valid is None else displayed_values[valid]) > 0:
            values, low, high = displayed_values, 0.0, 1.0
    if method == "percentile":
        inner_low, inner_high = map(float, np.percentile(exposed, percentiles, method="nearest"))
        low, high = (inner_low, inner_high) if inner_low < inner_high else (low, high)
    grey = _scaled(values, low, high)
    if picture.is_inverted:
        grey = 255 - grey
    return grey if valid is None else np.where(valid, grey, np.uint8(0))


def is_narrow(grey: np.ndarray) -> bool:
    """Return True if less than ``SPIKE_SHARE`` of the pixels use more than ``SPIKE_RANGE`` of the grey range.

    A bright marker or metal may cause this. It leaves only a part of the grey range for the chest.
    """
    histogram = cv2.calcHist([grey], [0], None, [256], [0, 256]).ravel()
    counts = np.cumsum(np.concatenate([[0], histogram]), dtype=np.int64)
    span = int(255 * (1 - SPIKE_RANGE))
    max_count = (counts[span + 1 :] - counts[: -span - 1]).max()
    return bool(counts[-1] - max_count < SPIKE_SHARE * counts[-1])


@dataclass(frozen=True)
class GreyImage:
    """A decoded image file.

    ``grey``: uint8 (rows, columns), with white bone and padding 0. The image of a DICOM file is oriented as stored; a
    PNG or JPEG is already upright by its EXIF tag. ``turn``: rotation or reflection that makes ``grey`` upright.
    ``notes``: header fields that were corrected or ignored, and text that was blacked out.
    """

    grey: np.ndarray
    turn: Turn
    notes: tuple[str, ...]

    def frame(self, fit: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the upright frame, uint8 (512, 512), and its affine (2, 3) to ``grey``. ``fit``: ``frames.fit``."""
        upright = self.turn.apply(self.grey)
        affine = fit_affine(upright.shape, FRAME_SIZE, fit)
        return to_frame(upright, affine, FRAME_SIZE), affine_to_stored(affine, self.turn, upright.shape)


def read_image(path: str, options: Mapping) -> GreyImage:
    """Decode a DICOM, PNG or JPEG file, and treat burned-in text as ``options`` require.

    ``options``: the settings window, percentiles and burned_in. Raises :class:`Rejected` for a file that cannot be
    decoded, and OSError if the machine cannot read the file.
    """
    picture = decode_file(path)
    grey, pieces = clean_image(to_grey(picture, options["window"], options["percentiles"]), options["burned_in"])
    return GreyImage(grey, picture.turn, (*picture.notes, *describe_blackout(pieces)))


def read_grey(path: str, options: Mapping) -> np.ndarray:
    """Return :attr:`GreyImage.grey` of a file. Raises the same errors as :func:`read_image`."""
    return read_image(path, options).grey


def check_frame_shape(original: np.ndarray, image_id: str, shape: tuple[int, int]) -> np.ndarray:
    """Return the decoded image ``original``. Raises StoreError if it lacks the ``shape`` recorded with its frame."""
    if original.shape != shape:
        raise StoreError(f"image {image_id} has changed its size since its frame was made: run the stage frames again")
    return original
