"""Decoding PNG and JPEG files. Incomplete files are rejected."""

import io
import os
import struct
import zlib
from typing import BinaryIO

import cv2
import numpy as np
from PIL import Image

from cxr.base.errors import out_of_memory
from cxr.dicom.codestream import APP1, is_complete_jpeg, iterate_jpeg_segments, read_jpeg
from cxr.dicom.files import Rejected, describe_error
from cxr.dicom.image import DecodedImage, check_area, compute_luma
from cxr.geometry.turns import EXIF_TURNS, UPRIGHT, Turn

_ORIENTATION_TAG = 0x0112
_EXIF_START = b"Exif\0\0"
_MAX_START_BYTES = 1 << 24  # bytes searched for a JPEG's frame header; colour profiles and thumbnails may precede it
_PNG_START = b"\x89PNG\r\n\x1a\n"


def read_png_size(data: bytes) -> tuple[int, int]:
    """Return (rows, columns) of a PNG. Raises :class:`Rejected` if a chunk is damaged or incomplete."""
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


def _decode_pixels(data: bytes, flags: int) -> np.ndarray:
    try:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except (cv2.error, MemoryError) as error:
        if out_of_memory(error):
            raise MemoryError from None
        raise Rejected("undecodable", describe_error(error)) from None
    if image is None:
        raise Rejected("undecodable", "the pixel data are damaged")
    return image


def read_exif_turn(file: BinaryIO) -> Turn:
    """Return the rotation or reflection that makes a PNG or JPEG upright by its EXIF tag; UPRIGHT if it has none."""
    exif = Image.Exif()
    try:
        exif.load(_read_exif(file))
        return EXIF_TURNS.get(exif.get(_ORIENTATION_TAG, 0), UPRIGHT)
    except Exception:  # damaged EXIF data fail in many ways; the image itself may be intact
        return UPRIGHT


def _read_exif(file: BinaryIO) -> bytes:
    """Return the EXIF data of a PNG or JPEG, or b"" if it has none. Does not decode pixels."""
    file.seek(0)
    if file.read(len(_PNG_START)) != _PNG_START:
        start = read_jpeg_start(file)
        for marker, offset in iterate_jpeg_segments(start):
            if marker == APP1 and start[offset + 2 : offset + 8] == _EXIF_START:
                return start[offset + 2 : offset + int.from_bytes(start[offset : offset + 2], "big")]
        return b""
    # Pillow would decode the image to find a chunk after the pixels
    while (chunk := file.read(8))[4:].isalpha():
        length = int.from_bytes(chunk[:4], "big")
        if chunk[4:] == b"eXIf":
            return file.read(length)
        file.seek(length + 4, os.SEEK_CUR)
    return b""


def read_jpeg_start(file: BinaryIO) -> bytes:
    """Return as many first bytes of a JPEG as contain its frame header, but at most :data:`_MAX_START_BYTES`."""
    size = 1 << 16
    while True:
        file.seek(0)
        start = file.read(size)
        ends_in_zeros = not start[len(start) // 2 :].strip(b"\0")
        if len(start) < size or size >= _MAX_START_BYTES or ends_in_zeros or read_jpeg(start) is not None:
            return start
        size *= 16


def _turn_upright(picture: DecodedImage, data: bytes) -> DecodedImage:
    turn = read_exif_turn(io.BytesIO(data))
    if turn != UPRIGHT:
        picture.values = turn.apply(picture.values)
        picture.valid = None if picture.valid is None else turn.apply(picture.valid)
        number = next(number for number, listed_turn in EXIF_TURNS.items() if listed_turn == turn)
        picture.notes.append(f"turned upright by its EXIF orientation, {number}")
    return picture


def decode_png(data: bytes) -> DecodedImage:
    """Decode a PNG of any bit depth and turn it upright by its EXIF tag. ``valid`` is False where it is transparent."""
    check_area(*read_png_size(data))
    image = _decode_pixels(data, cv2.IMREAD_UNCHANGED)
    if image.ndim == 2:
        return _turn_upright(DecodedImage(image), data)
    valid = None
    if image.shape[2] == 4:
        valid = image[..., 3] > 0
        valid = valid if valid.any() and not valid.all() else None
    return _turn_upright(DecodedImage(compute_luma(image[..., :3], cv2.COLOR_BGR2GRAY), valid), data)


def decode_jpeg(data: bytes) -> DecodedImage:
    """Decode a JPEG to its brightness and turn it upright by its EXIF orientation."""
    codestream = read_jpeg(data)
    if codestream is None:
        raise Rejected("undecodable", "no JPEG frame header")
    if not is_complete_jpeg(data):
        raise Rejected("undecodable", "truncated JPEG")
    check_area(codestream.rows, codestream.columns)
    return _turn_upright(DecodedImage(_decode_pixels(data, cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION)), data)
