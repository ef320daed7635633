"""Recognizing image files and reading DICOM headers that may be damaged."""

import io
import logging
import os
import re
import unicodedata
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO

import pydicom
from pydicom.dataset import Dataset
from pydicom.filereader import read_dataset
from pydicom.uid import DeflatedExplicitVRLittleEndian

from cxr.base.errors import MACHINE_ERRORS, redact
from cxr.base.faults import broken_part
from cxr.base.regular_files import open_regular
from cxr.geometry.turns import UPRIGHT, Turn, turn_from_patient_axes

# The table of exclusions reports a damaged header. pydicom's log messages are suppressed: they may quote patient text.
pydicom.config.settings.reading_validation_mode = pydicom.config.IGNORE
warnings.filterwarnings("ignore", module=r"pydicom(\.|$)")
logging.getLogger("pydicom").setLevel(logging.CRITICAL + 1)

HEAD_BYTES = 132  # number of leading bytes that :func:`detect_file_kind` needs

_PIXEL_DATA_TAG = 0x7FE00008
_ZERO_ELEMENT, _MAX_ZERO_ELEMENTS = bytes(8), 1000
"""pydicom reads eight zero bytes as an empty element with tag (0000,0000). A valid file has few such elements."""
_VRS = re.compile(rb"[A-Z]{2}")
_MAX_MESSAGE_LENGTH, _MAX_QUOTED_LENGTH = 160, 24


class HeaderError(Exception):
    """The bytes look like DICOM, but their header cannot be parsed."""


class Rejected(Exception):
    """The image cannot be used. ``reason`` is a code of ``exclusions.REASONS``. ``detail`` has no patient data."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def rejection_of(error: OSError) -> Rejected:
    """Return a Rejected that describes an error on opening a file. Raises ``error`` itself if the machine caused it."""
    if error.errno in MACHINE_ERRORS:
        raise error
    if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
        return Rejected("missing_file", "a folder" if isinstance(error, IsADirectoryError) else "")
    return Rejected("unreadable_file", (error.strerror or type(error).__name__).lower())


def quote_value(text: str) -> str:
    """Return a value of a table or header as it may stand in a message: in quotes, shortened, in ASCII. Runs of four or
    more digits are replaced by "…", because they may identify a patient."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    plain = " ".join(re.sub(r"[^A-Za-z0-9 .+\-_]+", " ", plain).split())
    plain = re.sub(r"\d{4,}", "…", plain)
    return f"'{plain[:_MAX_QUOTED_LENGTH]}…'" if len(plain) > _MAX_QUOTED_LENGTH else f"'{plain}'"


@cache
def _list_dicom_names() -> frozenset[str]:
    entries = pydicom.datadict.DicomDictionary.values()
    return frozenset({"Dataset", "FileMetaDataset", *(entry[2] for entry in entries), *(entry[4] for entry in entries)})


def describe_error(error: BaseException) -> str:
    """Return a decoder's error message in one line, without quotations, paths and UIDs, which may be patient data.
    Names of DICOM elements are kept. If the error has no message, the line names the error's class."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # pydicom lists the decoders that failed; the last one's message is the cause
    text = lines[-1] if lines and "exceptions were raised" in lines[0] else " ".join(lines)
    text = redact(text, _list_dicom_names())
    text = " ".join(re.sub(r"[^\x20-\x7e…]", " ", text).split())
    if len(re.sub(r"[^a-z]", "", text.lower())) < 4 or isinstance(error, KeyError):
        return {"EOFError": "the data end too early", "MemoryError": "not enough memory"}.get(
            type(error).__name__, f"the decoder failed with {type(error).__name__}"
        )
    return text if len(text) <= _MAX_MESSAGE_LENGTH else text[:_MAX_MESSAGE_LENGTH].rsplit(" ", 1)[0] + " …"


def detect_file_kind(head: bytes) -> str | None:
    """Return ``dicom``, ``png`` or ``jpeg`` from a file's first :data:`HEAD_BYTES` bytes, or None for any other file.

    A file without the DICOM preamble counts as DICOM if it starts with a plausible element of group 2 or 8.
    """
    if head[128:132] == b"DICM":
        return "dicom"
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "png"
    if head.startswith(b"\xff\xd8\xff"):
        return "jpeg"
    if len(head) < 8:
        return None
    for order in ("little", "big"):
        group = int.from_bytes(head[:2], order)
        explicit = _VRS.fullmatch(head[4:6]) is not None
        implicit_length = int.from_bytes(head[4:8], order)
        if group in (2, 8) and (explicit or (order == "little" and implicit_length <= 1024)):
            return "dicom"
    return None


def _find_deflated_start(head: bytes) -> int | None:
    """Return the offset at which the deflated dataset of a DICOM file starts, or None if the file is not deflated."""
    if head[128:140] != b"DICM\x02\x00\x00\x00UL\x04\x00":
        return None
    end = 144 + int.from_bytes(head[140:144], "little")
    return end if DeflatedExplicitVRLittleEndian.encode() in head[144:end] else None


class _CheckedStream:
    """A stream that raises HeaderError after too many elements of eight zero bytes. pydicom would read them all."""

    def __init__(self, stream: IO[bytes]):
        self._stream, self._zeros = stream, 0
        self.seek, self.tell, self.name = stream.seek, stream.tell, getattr(stream, "name", "")

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        if data == _ZERO_ELEMENT:
            self._zeros += 1
            if self._zeros > _MAX_ZERO_ELEMENTS:
                raise HeaderError("the file has zeros in place of elements, because it was not copied completely")
        return data


def read_dicom(data: bytes | str | Path, tags: list[str] | None = None, limit: int = 1 << 22) -> Dataset:
    """Read a DICOM dataset. If ``tags`` are given, read only these header elements, and no pixels.

    ``data`` is a file's path or bytes. The preamble and the file meta may be missing. With ``tags``, at most ``limit``
    bytes of a deflated file are inflated. Raises HeaderError if parsing fails, OSError if the file cannot be opened.
    """
    with io.BytesIO(data) if isinstance(data, bytes) else open_regular(data) as stream:
        try:
            start = _find_deflated_start(stream.read(4096)) if tags is not None else None
            stream.seek(start or 0)
            if start is None:
                return pydicom.dcmread(
                    _CheckedStream(stream), force=True, stop_before_pixels=tags is not None, specific_tags=tags
                )
            body = io.BytesIO(zlib.decompressobj(-zlib.MAX_WBITS).decompress(stream.read(), limit))
            return read_dataset(_CheckedStream(body), False, True, stop_when=lambda tag, *_: tag >= _PIXEL_DATA_TAG)
        except Exception as error:  # fuzzed bytes make pydicom fail in many ways
            has_number = isinstance(error, OSError) and error.errno is not None
            if has_number or isinstance(error, HeaderError) or broken_part(error):
                raise
            raise HeaderError(describe_error(error)) from None


def get_text(dataset: Dataset, name: str) -> str:
    """Return an element's values as upper-case ASCII text, joined by ``\\``; "" if the element is absent or unusable.

    The text of a code sequence contains the meaning and the value of each item.
    """
    try:
        value = dataset.get(name)
        if isinstance(value, pydicom.Sequence):
            value = [f"{get_text(item, 'CodeMeaning')} {get_text(item, 'CodeValue')}" for item in value]
        if isinstance(value, list | pydicom.multival.MultiValue):
            value = "\\".join(str(part) for part in value)
        text = "" if value is None else str(value)
    except Exception:  # a fuzzed element can fail in any way when it is converted
        return ""
    return normalize_text(text)


def normalize_text(text: str) -> str:
    """Convert a text to stripped upper-case ASCII, so that coded values can be compared."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    return plain.replace("\0", " ").strip().upper()


def get_turn(dataset: Dataset) -> Turn:
    """Return the turn that makes a frontal image upright, by its PatientOrientation; UPRIGHT if that is unusable."""
    directions = get_text(dataset, "PatientOrientation").split("\\")
    rows, columns = (direction.strip()[:1] for direction in (*directions, "", "")[:2])
    return turn_from_patient_axes(rows, columns) or UPRIGHT


def get_number(dataset: Dataset, name: str) -> float | None:
    """Return the first value of an element as a finite number, None if the element is absent or unusable."""
    try:
        value = dataset.get(name)
        value = value[0] if isinstance(value, list | pydicom.multival.MultiValue) else value
        number = float(value)
    except Exception:  # as above
        return None
    return number if number == number and abs(number) != float("inf") else None


@contextmanager
def silence_output() -> Iterator[None]:
    """Discard all output of this process, because decoders of damaged files print messages that quote patient text."""
    stream_copies = [(stream, os.dup(stream)) for stream in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for stream, _ in stream_copies:
            os.dup2(nowhere, stream)
        yield
    finally:
        for stream, copy in stream_copies:
            os.dup2(copy, stream)
            os.close(copy)
        os.close(nowhere)
