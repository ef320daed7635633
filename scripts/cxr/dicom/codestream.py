"""Reading the headers of JPEG, JPEG-LS and JPEG 2000 codestreams, and checking that they are complete."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

START_OF_IMAGE, END_OF_IMAGE, START_OF_SCAN, APP1, ADOBE = 0xD8, 0xD9, 0xDA, 0xE1, 0xEE
FRAME_HEADERS = (set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}) | {0xF7}  # SOF0 to SOF15 without DHT, JPG, DAC; JPEG-LS
LOSSLESS_FRAMES = {0xC3, 0xC7, 0xCB, 0xCF, 0xF7}
_MARKER = re.compile(rb"\xff([\xc0-\xcf\xd8-\xfe])")
"""Markers of segments, start of image and end of image. Encoded samples never contain them (ITU-T T.81, T.87)."""
_JPEG_2000_START = b"\xff\x4f\xff\x51"  # start of a JPEG 2000 codestream: SOC and SIZ (ITU-T T.800, A.4 and A.5)
_TILE_DATA, _END_OF_CODESTREAM = b"\xff\x93", b"\xff\xd9"
# A JPEG 2000 codestream must begin in this number of bytes. DICOM forbids boxes before it, but some files have them.
_MAX_BOX_BYTES = 4096


@dataclass(frozen=True)
class Codestream:
    """The header of a JPEG, JPEG-LS or JPEG 2000 codestream."""

    rows: int
    columns: int
    components: int
    precision: int  # bits per sample
    is_signed: bool | None  # None if the format does not tell the sign
    marker: int  # code of a JPEG's frame header, such as 0xC0; 0 for JPEG 2000
    is_rgb: bool  # whether the decoder returns three components as RGB


def iterate_jpeg_segments(stream: bytes) -> Iterator[tuple[int, int]]:
    """Yield (marker, offset of the next byte) for each marker of a JPEG or JPEG-LS stream, up to its end of image.

    Skips markers inside a segment, such as those of a thumbnail, and data after the end of image.
    """
    offset = 0
    while match := _MARKER.search(stream, offset):
        marker, offset = match[1][0], match.end()
        yield marker, offset
        if marker == END_OF_IMAGE:
            return
        if marker != START_OF_IMAGE:
            offset += int.from_bytes(stream[offset : offset + 2], "big")


def is_complete_jpeg(stream: bytes) -> bool:
    """Return True if a JPEG or JPEG-LS stream has a scan and an end of image. Decoders fill missing parts with grey."""
    markers = [marker for marker, _ in iterate_jpeg_segments(stream)]
    return START_OF_SCAN in markers and markers[-1] == END_OF_IMAGE


def is_complete_jpeg_2000(stream: bytes) -> bool:
    """Return True if a JPEG 2000 stream has an end marker after its last tile. Tile data cannot contain this marker."""
    last_tile = stream.rfind(_TILE_DATA)
    return last_tile >= 0 and stream.rfind(_END_OF_CODESTREAM) > last_tile


def read_jpeg(stream: bytes) -> Codestream | None:
    """Return the frame header of a JPEG or JPEG-LS stream, or None if the stream has none."""
    adobe_transform = None
    for marker, offset in iterate_jpeg_segments(stream):
        if marker == ADOBE and stream[offset + 2 : offset + 7] == b"Adobe":
            adobe_transform = stream[offset + 13 : offset + 14]
        if marker in FRAME_HEADERS and len(stream) >= offset + 8:
            precision, rows, columns, components = struct.unpack(">BHHB", stream[offset + 2 : offset + 8])
            names = bytes(stream[offset + 8 : offset + 8 + 3 * components : 3])
            # If the Adobe marker states the transform, Pillow returns RGB. Otherwise pydicom converts YCbCr.
            is_rgb = adobe_transform is not None or marker in LOSSLESS_FRAMES or names in (b"RGB", b"rgb")
            return Codestream(rows, columns, components, precision, None, marker, is_rgb)
    return None


def read_jpeg_2000(stream: bytes) -> Codestream | None:
    """Return the header of a JPEG 2000 or HTJ2K codestream, or None if ``stream`` has none."""
    start = stream.find(_JPEG_2000_START, 0, _MAX_BOX_BYTES)
    fields = stream[start + 8 : start + 43]
    if start < 0 or len(fields) < 35:
        return None
    x_stop, y_stop, x_start, y_start = struct.unpack(">4I", fields[:16])
    components, depth = struct.unpack(">HB", fields[32:35])
    return Codestream(y_stop - y_start, x_stop - x_start, components, (depth & 0x7F) + 1, depth > 0x7F, 0, True)
