"""Decoding DICOM, PNG and JPEG files to pixel values. A file that cannot be used is rejected with the reason."""

import os

import numpy as np

from cxr.base.regular_files import open_regular
from cxr.dicom.files import HEAD_BYTES, Rejected, detect_file_kind, rejection_of
from cxr.dicom.image import MAX_PIXELS, DecodedImage
from cxr.dicom.pixels import decode_dicom
from cxr.dicom.raster import decode_jpeg, decode_png

_PIXEL_BYTES, _HEADER_BYTES = 24, 1 << 26
"""Maximum number of bytes of a pixel (three samples of 64 bits), and maximum number of bytes outside the pixels."""


def decode_file(path: str) -> DecodedImage:
    """Decode a DICOM, PNG or JPEG file, whose first bytes tell the format.

    Raises :class:`Rejected` with one of the reasons missing_file, unreadable_file, empty_file, not_dicom, no_pixels,
    multi_frame, undecodable, constant_image. Raises OSError if the machine cannot read the file.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > _HEADER_BYTES + _PIXEL_BYTES * MAX_PIXELS:
                raise Rejected("undecodable", f"the file has {size} bytes, more than {MAX_PIXELS} pixels need")
            data = file.read()
    except OSError as error:
        raise rejection_of(error) from None
    if not data:
        raise Rejected("empty_file")
    kind = detect_file_kind(data[:HEAD_BYTES])
    if kind is None:
        raise Rejected("not_dicom")
    picture = decode_dicom(path, data) if kind == "dicom" else (decode_png if kind == "png" else decode_jpeg)(data)
    if picture.values.dtype.kind == "f":
        finite = np.isfinite(picture.values)
        if not finite.all():
            picture.valid = finite if picture.valid is None else finite & picture.valid
            picture.values = np.where(finite, picture.values, 0)
            if not picture.valid.any():
                raise Rejected("constant_image", "no finite value")
    return picture
