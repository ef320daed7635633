"""DICOM images of a source, decoded as in the stage frames, and DICOM masks, with their stored values."""

from pathlib import Path

import numpy as np
from pydicom.pixels import pixel_array

from cxr.base.errors import MACHINE_ERRORS, UserError, out_of_memory
from cxr.base.faults import broken_part
from cxr.dicom.decode import decode_file
from cxr.dicom.files import (
    HEAD_BYTES,
    Rejected,
    describe_error,
    detect_file_kind,
    get_number,
    get_text,
    read_dicom,
    silence_output,
)
from cxr.dicom.pixels import list_missing_decoders
from cxr.imaging.frames.decoding import to_grey
from cxr.medground.sources.image import PERCENTILES, Refused


def is_dicom(path: Path) -> bool:
    """Return whether a file exists and is DICOM, by its first bytes."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return detect_file_kind(file.read(HEAD_BYTES)) == "dicom"


def read_dicom_grey(path: Path, max_pixels: int) -> np.ndarray:
    """Return a DICOM image uint8 (H, W), bones white, padding 0, scaled like other images of more than 8 bits.

    ``max_pixels``: larger images are not decoded. Raises Refused with a reason of the stage frames, UserError if
    decoders are not installed.
    """
    if missing := list_missing_decoders():
        raise UserError(f"{path.name} is DICOM, and this Python lacks decoders ({', '.join(missing)}): install them")
    try:
        with silence_output():
            return to_grey(decode_file(str(path), max_pixels), "percentile", list(PERCENTILES))
    except Rejected as rejected:
        raise Refused(rejected.reason, rejected.detail) from None
    except Exception as error:  # decoders raise what their parts raise
        if out_of_memory(error) or broken_part(error) or getattr(error, "errno", None) in MACHINE_ERRORS:
            raise
        raise Refused("undecodable", describe_error(error)) from None


def read_dicom_values(path: Path, max_pixels: int) -> np.ndarray:
    """Return the stored values (H, W) or (H, W, 3) of a DICOM mask; high values are white.

    Raises Refused for several frames, or if it cannot be decoded.
    """
    try:
        with silence_output():
            dataset = read_dicom(path)
            frames = int(get_number(dataset, "NumberOfFrames") or 1)
            if frames > 1:
                raise Refused("multi_frame", f"the mask has {frames} frames: give each class its own file")
            if int(dataset.Rows) * int(dataset.Columns) > max_pixels:
                raise Refused("undecodable", f"more than {max_pixels} pixels")
            values = pixel_array(dataset, index=0)
    except Refused:
        raise
    except Exception as error:  # as above
        if out_of_memory(error) or broken_part(error) or getattr(error, "errno", None) in MACHINE_ERRORS:
            raise
        raise Refused("undecodable", describe_error(error)) from None
    if get_text(dataset, "PhotometricInterpretation") == "MONOCHROME1":
        values = (1 << int(dataset.BitsStored)) - 1 - values.astype(np.int64)
    return values
