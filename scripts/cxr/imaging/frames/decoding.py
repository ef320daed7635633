"""An image file as its frame shows it, in its own pixels."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cxr.base.errors import StoreError
from cxr.base.hdf5 import FRAME_SIZE
from cxr.dicom.decode import decode_file
from cxr.geometry.affine import affine_to_stored, fit_affine, to_frame
from cxr.geometry.turns import Turn
from cxr.imaging.frames.burned_in import clean_image, describe_blackout
from cxr.imaging.frames.window import to_grey


@dataclass(frozen=True)
class GreyImage:
    """A decoded image file.

    ``grey``: uint8 (rows, columns) as the file stores it, but a PNG or JPEG upright by its EXIF orientation; with white
    bone and padding 0. ``turn``: how it becomes upright; ``notes``: what was corrected or ignored in its header, and
    what was blacked out in its pixels.
    """

    grey: np.ndarray
    turn: Turn
    notes: tuple[str, ...]

    def frame(self, fit: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the upright frame uint8 (512, 512), and the affine (2, 3) from it to :attr:`grey`."""
        upright = self.turn.apply(self.grey)
        affine = fit_affine(upright.shape, FRAME_SIZE, fit)
        return to_frame(upright, affine, FRAME_SIZE), affine_to_stored(affine, self.turn, upright.shape)


def read_image(path: str, options: Mapping) -> GreyImage:
    """Decode a DICOM, PNG or JPEG file; text that is burned in is blacked out.

    ``options``: the settings max_pixels, window, percentiles and burned_in of the frames stage. Raises
    :class:`Rejected` for a file that cannot be decoded, OSError if the machine cannot read it.
    """
    picture = decode_file(path, options["max_pixels"])
    grey, pieces = clean_image(to_grey(picture, options["window"], options["percentiles"]), options["burned_in"])
    return GreyImage(grey, picture.turn, (*picture.notes, *describe_blackout(pieces)))


def read_grey(path: str, options: Mapping) -> np.ndarray:
    """Return the original pixels of a file, :attr:`GreyImage.grey`. Raises as :func:`read_image` does."""
    return read_image(path, options).grey


def check_frame_shape(original: np.ndarray, image_id: str, shape: tuple[int, int]) -> np.ndarray:
    """Return an original picture. Raises StoreError if it has another ``shape`` than its frame tells."""
    if original.shape != shape:
        raise StoreError(f"image {image_id} has another size than its frame tells: run frames again")
    return original
