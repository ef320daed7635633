"""An image file as its frame shows it, in its own pixels."""

from collections.abc import Mapping

import numpy as np

from cxr.base.errors import StoreError
from cxr.dicom.decode import decode
from cxr.imaging.frames.window import to_grey


def grey_of(path: str, how: Mapping) -> np.ndarray:
    """Return a DICOM, PNG or JPEG file as uint8 (rows, columns), upright and with white bone, padding 0.

    ``how``: the settings max_pixels, window and percentiles of the frames stage. Raises :class:`Rejected` for a file
    that cannot be decoded, OSError if the machine cannot read it.
    """
    return to_grey(decode(path, how["max_pixels"]), how["window"], how["percentiles"])


def of_its_frame(original: np.ndarray, image_id: str, shape: tuple[int, int]) -> np.ndarray:
    """Return an original picture. Raises StoreError if it has another ``shape`` than its frame tells."""
    if original.shape != shape:
        raise StoreError(f"image {image_id} has another size than its frame tells: run frames again")
    return original
