"""DICOM pictures of a source, decoded as the stage frames decodes them."""

from pathlib import Path

import numpy as np

from cxr.base.errors import MACHINE_ERRORS, UserError, out_of_memory
from cxr.base.faults import broken
from cxr.dicom.decode import decode
from cxr.dicom.files import HEAD_BYTES, Rejected, file_kind, sentence_of
from cxr.dicom.pixels import lacking
from cxr.dicom.quiet import silence
from cxr.imaging.frames.window import to_grey
from cxr.medground.sources.image import PERCENTILES, Refused


def is_dicom(path: Path) -> bool:
    """Return whether a file is DICOM, by its first bytes; a file that is not there is not."""
    if not path.is_file():
        return False
    with open(path, "rb") as file:
        return file_kind(file.read(HEAD_BYTES)) == "dicom"


def dicom_grey(path: Path, max_pixels: int) -> np.ndarray:
    """Return a DICOM picture uint8 (H, W), white bone, padding 0; its range is that of other pictures of many bits.

    ``max_pixels``: more are not decoded. Raises Refused with a reason of the stage frames, UserError where this Python
    lacks decoders.
    """
    if missing := lacking():
        raise UserError(f"{path.name} is DICOM, and this Python lacks decoders ({', '.join(missing)}): install them")
    try:
        with silence():
            return to_grey(decode(str(path), max_pixels), "percentile", list(PERCENTILES))
    except Rejected as rejected:
        raise Refused(rejected.reason, rejected.detail) from None
    except Exception as error:  # decoders raise what their parts raise
        if out_of_memory(error) or broken(error) or getattr(error, "errno", None) in MACHINE_ERRORS:
            raise
        raise Refused("undecodable", sentence_of(error)) from None
