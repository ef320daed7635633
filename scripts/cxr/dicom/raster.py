"""Decoding PNG and JPEG files; incomplete files are rejected."""

import struct
import zlib

import cv2
import numpy as np

from cxr.base.errors import out_of_memory
from cxr.dicom.files import Rejected, sentence_of
from cxr.dicom.picture import Picture, check_area, luma

_START_OF_SCAN, _END_OF_IMAGE = b"\xff\xda", b"\xff\xd9"
# SOF0..SOF15 without DHT, JPG and DAC.
_FRAME_MARKERS = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


def jpeg_is_complete(stream: bytes, start: bytes = _START_OF_SCAN) -> bool:
    """Tell whether a JPEG, JPEG-LS or JPEG 2000 codestream reaches its end marker.

    Entropy-coded data of these formats cannot contain the marker, so one after the last scan (``start``) is the end.
    Decoders silently fill the missing part of a truncated stream with grey.
    """
    last = stream.rfind(start)
    return last >= 0 and stream.rfind(_END_OF_IMAGE) > last


def jpeg_size(stream: bytes) -> tuple[int, int]:
    """Return (rows, columns) from the frame header of a JPEG. Raises :class:`Rejected` if there is none."""
    place = 2
    while place + 9 <= len(stream) and stream[place] == 0xFF:
        marker = stream[place + 1]
        if marker in _FRAME_MARKERS:
            return struct.unpack(">HH", stream[place + 5 : place + 9])
        standalone = marker == 0xFF or 0xD0 <= marker <= 0xD8 or marker == 0x01
        place += 1 if marker == 0xFF else 2 if standalone else 2 + int.from_bytes(stream[place + 2 : place + 4], "big")
    raise Rejected("undecodable", "no JPEG frame header")


def png_size(data: bytes) -> tuple[int, int]:
    """Return (rows, columns) of a PNG with complete chunks; raise :class:`Rejected` for a damaged one."""
    place, size, ended = 8, None, False
    while place + 12 <= len(data) and not ended:
        length = int.from_bytes(data[place : place + 4], "big")
        if place + 12 + length > len(data):
            break
        body = data[place + 4 : place + 8 + length]
        if zlib.crc32(body) != int.from_bytes(data[place + 8 + length : place + 12 + length], "big"):
            raise Rejected("undecodable", "damaged PNG")
        if body[:4] == b"IHDR" and length >= 8:
            size = struct.unpack(">II", body[4:12])
        ended = body[:4] == b"IEND"
        place += 12 + length
    if size is None or not ended:
        raise Rejected("undecodable", "truncated PNG")
    return size[1], size[0]


def _decoded(data: bytes, flags: int) -> np.ndarray:
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except (cv2.error, MemoryError) as error:
        if out_of_memory(error):
            raise MemoryError from None
        raise Rejected("undecodable", sentence_of(error)) from None
    if image is None:
        raise Rejected("undecodable", "the pixel data are damaged")
    return image


def decode_png(data: bytes, max_pixels: int) -> Picture:
    """Decode a PNG of any bit depth; fully transparent pixels count as padding."""
    check_area(*png_size(data), max_pixels)
    image = _decoded(data, cv2.IMREAD_UNCHANGED)
    if image.ndim == 2:
        return Picture(image)
    valid = None
    if image.shape[2] == 4:
        valid = image[..., 3] > 0
        valid = valid if valid.any() and not valid.all() else None
    return Picture(luma(image[..., :3], cv2.COLOR_BGR2GRAY), valid)


def decode_jpeg(data: bytes, max_pixels: int) -> Picture:
    """Decode a JPEG file to its brightness; an EXIF rotation is not applied (its pixels are the original pixels)."""
    if not jpeg_is_complete(data):
        raise Rejected("undecodable", "truncated JPEG")
    check_area(*jpeg_size(data), max_pixels)
    return Picture(_decoded(data, cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION))
