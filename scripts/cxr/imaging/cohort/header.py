"""Reading the header of an image file, without pixels, and checking that it may be a frontal chest X-ray."""

import re
from dataclasses import dataclass

from PIL import Image, UnidentifiedImageError
from pydicom.dataset import Dataset

from cxr.base.regular_files import open_regular
from cxr.dicom import files
from cxr.dicom.codestream import read_jpeg
from cxr.dicom.files import Rejected, describe_error, get_text
from cxr.dicom.raster import read_exif_turn, read_jpeg_start
from cxr.geometry.turns import UPRIGHT, Turn
from cxr.imaging.cohort.view import CODE_FIELDS, FIELDS, OTHER, TEXT_FIELDS, read_view

MIN_SIDE = 128  # minimum side of an image, pixels; smaller images are excluded as too_small
# Pillow reads only the size here, so its limit is not needed; the stage frames has its own limit.
Image.MAX_IMAGE_PIXELS = None

_TIMES = [(f"{kind}Date", f"{kind}Time") for kind in ("Acquisition", "Content", "Series", "Study")]
_TAGS = [*FIELDS, "SOPClassUID", "Modality", "BodyPartExamined", "AnatomicRegionSequence", "Rows", "Columns"]
_TAGS += ["AcquisitionDateTime", *(name for pair in _TIMES for name in pair)]
_UNKNOWN_PARTS = {
    "", "UNKNOWN", "UNSPECIFIED", "NOT SPECIFIED", "UNDEFINED", "NONE", "NULL", "N A", "NA", "NOT APPLICABLE",
    "NOT AVAILABLE",
}  # fmt: skip
"""Values of BodyPartExamined that do not name a body part."""
_LETTERS_OF_PART = 5  # minimum length of a body part that may match inside a longer word (RIB is also in TRIBE)
_CR = "1.2.840.10008.5.1.4.1.1.1"
_MODALITY_OF_CLASS = {_CR: "CR", f"{_CR}.1": "DX", f"{_CR}.1.1": "DX"}


@dataclass(frozen=True, slots=True)
class Header:
    """Header fields of an image file. ``modality`` and ``body_part`` are None for PNG and JPEG, which lack them.

    ``size``: (rows, columns), upright for PNG and JPEG, as stored for DICOM; ``view_field``: the field that states the
    view, or the reason why ``view`` is None; ``turn``: rotation or reflection that makes a DICOM image upright.
    """

    size: tuple[int, int] | None
    modality: str | None = None
    body_part: str | None = None
    view: str | None = None
    view_field: str = ""
    acquired: str | None = None
    turn: Turn = UPRIGHT


def _acquired(dataset: Dataset) -> str | None:
    timestamp = get_text(dataset, "AcquisitionDateTime")
    for date, time in _TIMES:
        if re.match(r"\d{8}", timestamp):
            break
        timestamp = get_text(dataset, date) + get_text(dataset, time)
    match = re.match(r"\d{8}(\d{2,6}(\.\d{1,6})?)?", timestamp)
    return match.group() if match else None


def _dicom_header(path: str, magic: bool) -> Header:
    reason = "unreadable_header" if magic else "not_dicom"
    try:
        dataset = files.read_dicom(path, _TAGS)
    except files.HeaderError as error:
        raise Rejected(reason, str(error)) from None
    except MemoryError as error:
        raise Rejected("unreadable_header", describe_error(error)) from None
    if not any(get_text(dataset, name) for name in ("SOPClassUID", "Modality", "Rows")):
        raise Rejected(reason, "no SOPClassUID, Modality or Rows")
    rows, columns = files.get_number(dataset, "Rows"), files.get_number(dataset, "Columns")
    view, view_field = read_view(dataset)
    if view is None:  # codes are quoted, descriptions are not, because they may contain patient text
        clauses = [f"{name} is {_quote_code(text)}" for name in CODE_FIELDS if (text := get_text(dataset, name))]
        texts = [name for name in (*TEXT_FIELDS, "PatientOrientation") if get_text(dataset, name)]
        clauses += [", ".join(texts)] if texts else []
        empty = "ViewPosition and the other view fields are empty"
        view_field = f"not understood: {'; '.join(clauses)}" if clauses else empty
    return Header(
        size=None if rows is None or columns is None else (int(rows), int(columns)),
        modality=get_text(dataset, "Modality") or _MODALITY_OF_CLASS.get(get_text(dataset, "SOPClassUID"), ""),
        body_part=get_text(dataset, "BodyPartExamined") or get_text(dataset, "AnatomicRegionSequence"),
        view=view,
        view_field=view_field,
        acquired=_acquired(dataset),
        turn=files.get_turn(dataset),
    )


def _picture_header(path: str, kind: str) -> Header:
    try:
        with open_regular(path) as file:
            if kind == "png":
                with Image.open(file, formats=("PNG",)) as picture:
                    size = picture.height, picture.width
            elif codestream := read_jpeg(read_jpeg_start(file)):
                size = codestream.rows, codestream.columns
            else:
                raise Rejected("unreadable_header", "no JPEG frame header")
            return Header(size=read_exif_turn(file).shape(size), view_field="a PNG or JPEG file does not state a view")
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise files.rejection_of(error) from None
        raise Rejected("unreadable_header", describe_error(error)) from None


def read_turn(path: str) -> Turn:
    """Return the rotation or reflection that makes a DICOM image upright; UPRIGHT for other and unreadable files."""
    try:
        return read_header(path).turn
    except Rejected:
        return UPRIGHT


def read_header(path: str) -> Header:
    """Read a DICOM, PNG or JPEG header. The first bytes give the format. Raises Rejected for faulty or other files."""
    try:
        with open_regular(path) as file:
            head = file.read(files.HEAD_BYTES)
    except OSError as error:
        raise files.rejection_of(error) from None
    except ValueError:  # a path that no file can have
        raise Rejected("missing_file") from None
    if not head:
        raise Rejected("empty_file")
    kind = files.detect_file_kind(head)
    if kind is None:
        raise Rejected("not_dicom")
    try:
        return _dicom_header(path, head[128:132] == b"DICM") if kind == "dicom" else _picture_header(path, kind)
    except OSError as error:
        raise files.rejection_of(error) from None


_CODE = re.compile(r"[A-Z0-9 _.+\\-]{1,32}")


def _quote_code(text: str) -> str:
    return files.quote_value(text).strip("'") if _CODE.fullmatch(text) else "a value that is not a code"


def check_kind(header: Header, modalities: list[str], body_parts: list[str]) -> None:
    """Raise :class:`Rejected` unless the header's modality and body part are among those to accept.

    A body part is accepted if it or one of its words is listed (CHEST PORTABLE). It is also accepted if one of its
    words contains a listed word of five or more letters (CHESTABDOMEN), or if the field is empty or says "unknown".
    """
    if header.modality is not None and header.modality not in map(files.normalize_text, modalities):
        raise Rejected("wrong_modality", _quote_code(header.modality) if header.modality else "no modality")
    words = re.findall(r"[A-Z]+", header.body_part or "")
    phrase = " ".join(words)
    listed = {" ".join(re.findall(r"[A-Z]+", files.normalize_text(part))) for part in body_parts}
    parts = [part for part in listed if len(part) >= _LETTERS_OF_PART]
    if phrase in _UNKNOWN_PARTS or {*words, phrase} & listed or any(part in word for part in parts for word in words):
        return
    raise Rejected("wrong_body_part", _quote_code(header.body_part or ""))


def check_view(view: str | None, view_source: str, views: list[str], accept_unknown: bool) -> str:
    """Return the view of an accepted image ("" if unknown). Raises :class:`Rejected` for an image that is not accepted.

    ``view_source``: text for the message; it says where the view is stated, or which fields do not state one.
    """
    if view in views:
        return view
    if view is not None:
        detail = "lateral, oblique or other" if view == OTHER else view
        raise Rejected("not_frontal", f"{detail}, by {view_source}")
    if not accept_unknown:
        raise Rejected("unknown_view", view_source)
    return ""
