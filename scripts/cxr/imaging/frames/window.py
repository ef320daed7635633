"""Mapping pixel values to 8-bit grey levels."""

import cv2
import numpy as np

from cxr.dicom.files import Rejected
from cxr.dicom.image import DecodedImage

SPIKE_SHARE, SPIKE_RANGE = 0.001, 0.5
"""Fewer than this fraction of the pixels (markers, metal) with more than this fraction of the grey range are logged."""


def _scaled(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """Map low..high to 0..255 (uint8), rounding to the nearest, clipping outside."""
    if values.dtype.kind in "iu" and values.dtype.itemsize <= 2:
        limits = np.iinfo(values.dtype)
        grid = np.arange(limits.min, limits.max + 1, dtype=np.float64)
        table = np.rint(np.clip((grid - low) / (high - low), 0, 1) * 255).astype(np.uint8)
        return table[values if limits.min == 0 else values.astype(np.int32) - limits.min]
    share = (values.astype(np.float64) - low) / (high - low)
    return np.rint(np.clip(share, 0, 1) * 255).astype(np.uint8)


def _range(exposed: np.ndarray, method: str, percentiles: list[float]) -> tuple[float, float]:
    if method == "percentile":
        low, high = np.percentile(exposed, percentiles, method="nearest")
        if low < high:
            return float(low), float(high)
    return float(exposed.min()), float(exposed.max())


def to_grey(picture: DecodedImage, method: str, percentiles: list[float]) -> np.ndarray:
    """Return the image as uint8 (rows, columns), with white bone and padding 0 (ils.md section 2).

    ``minmax`` maps the exposed range to 0..255; ``percentile`` the range between two percentiles; ``voi`` uses the
    file's window or table, or ``minmax`` if it has none or one that leaves a single value. Raises :class:`Rejected` for
    an image with a single value.
    """
    values, valid = picture.values, picture.valid
    exposed = values if valid is None else values[valid]
    if exposed.min() == exposed.max():
        raise Rejected("constant_image")
    grey = None
    if method == "voi" and picture.voi_note:
        picture.notes.append(picture.voi_note)
    if method == "voi" and picture.voi is not None:
        displayed_values = picture.voi(values)
        if np.ptp(displayed_values if valid is None else displayed_values[valid]) > 0:
            grey = _scaled(displayed_values, 0.0, 1.0)
    if grey is None:
        grey = _scaled(values, *_range(exposed, method, percentiles))
    if picture.is_inverted:
        grey = 255 - grey
    return grey if valid is None else np.where(valid, grey, np.uint8(0))


def is_narrow(grey: np.ndarray) -> bool:
    """Tell whether less than :data:`SPIKE_SHARE` of the pixels occupy more than :data:`SPIKE_RANGE` of the grey range.

    This is true if a marker or metal compresses the chest into a part of the range: an interval of at most
    1 - ``SPIKE_RANGE`` of the range holds all other pixels.
    """
    histogram = cv2.calcHist([grey], [0], None, [256], [0, 256]).ravel()
    counts = np.cumsum(np.concatenate([[0], histogram]), dtype=np.int64)
    span = int(255 * (1 - SPIKE_RANGE))
    max_count = (counts[span + 1 :] - counts[: -span - 1]).max()
    return bool(counts[-1] - max_count < SPIKE_SHARE * counts[-1])
