"""Decoding DICOM pixel data of any transfer syntax. Incomplete data are rejected."""

import re
from collections.abc import Callable
from functools import partial

import cv2
import numpy as np
from pydicom import uid
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import generate_frames
from pydicom.pixels import apply_color_lut, get_decoder, pixel_array

from cxr.base.errors import out_of_memory
from cxr.base.faults import broken_part
from cxr.dicom import files
from cxr.dicom import header_correction as correction
from cxr.dicom.codestream import Codestream, is_complete_jpeg, is_complete_jpeg_2000
from cxr.dicom.files import HeaderError, Rejected, describe_error, get_number, get_text, get_turn, read_dicom
from cxr.dicom.header_correction import JPEG_2000, JPEG_LOSSLESS, JPEG_LOSSY, JPEG_LS
from cxr.dicom.image import DecodedImage, check_area, compute_luma
from cxr.dicom.lookup import LookupTable, UnusableTable, read_lookup_table
from cxr.geometry.turns import UPRIGHT

# The fastest reliable decoder comes first. The order is fixed, so that lossy images have the same pixels everywhere.
_DECODERS = {
    **dict.fromkeys(JPEG_LOSSY, ("pillow", "gdcm", "pylibjpeg")),
    **dict.fromkeys(JPEG_LOSSLESS, ("gdcm", "pylibjpeg")),
    **dict.fromkeys(JPEG_LS, ("pyjpegls", "gdcm", "pylibjpeg")),
    **dict.fromkeys(JPEG_2000, ("pylibjpeg", "gdcm", "pillow")),
    uid.RLELossless: ("pydicom",),
}
_COMPLETENESS_CHECKS = dict.fromkeys(JPEG_2000, is_complete_jpeg_2000)  # pydicom checks native and RLE data
_COMPLETENESS_CHECKS |= dict.fromkeys((*JPEG_LOSSY, *JPEG_LOSSLESS, *JPEG_LS), is_complete_jpeg)
_ITEM_START, _SEQUENCE_END = b"\xfe\xff\x00\xe0", b"\xfe\xff\xdd\xe0\x00\x00\x00\x00"
_UNDEFINED_LENGTH = re.compile(rb"\xe0\x7f\x10\x00(?:O[BW]\x00\x00)?\xff\xff\xff\xff(?=\xfe\xff\x00\xe0)")
"""Pattern of the header of a pixel data element of undefined length, before its first item."""
_PIXEL_FIELDS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_PIXEL_TAGS = (b"\xe0\x7f\x10\x00", b"\x7f\xe0\x00\x10")


def list_missing_decoders() -> list[str]:
    """Return pydicom's messages about missing decoders. Without these decoders, valid files would be excluded."""
    missing_decoders = set()
    for syntax, names in _DECODERS.items():
        try:
            missing = get_decoder(syntax).missing_dependencies
        except NotImplementedError:  # a part of the standard that pydicom does not implement
            continue
        missing_decoders |= {line for line in missing if line.partition(" ")[0] in names}
    return sorted(missing_decoders)


def _set_syntax(dataset: Dataset) -> uid.UID:
    meta = getattr(dataset, "file_meta", None)
    if meta is None:
        meta = dataset.file_meta = FileMetaDataset()
    if not meta.get("TransferSyntaxUID"):
        implicit, little = dataset.original_encoding
        explicit = uid.ExplicitVRLittleEndian if little else uid.ExplicitVRBigEndian
        meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian if implicit else explicit
    return meta.TransferSyntaxUID


def _read_encoded_frame(dataset: Dataset) -> bytes | None:
    """Return the first frame of encapsulated pixel data with its fragments joined. Return None for native data."""
    data = dataset.get("PixelData")
    syntax = dataset.file_meta.TransferSyntaxUID
    may_hold_items = not syntax.is_transfer_syntax or syntax.is_encapsulated
    if not data or not (dataset["PixelData"].is_undefined_length or (may_hold_items and data.startswith(_ITEM_START))):
        return None
    try:
        return next(generate_frames(data, number_of_frames=1))
    except Exception as error:  # fuzzed fragments fail in many ways
        raise Rejected("undecodable", f"pixel data: {describe_error(error)}") from None


def _read_dataset(data: bytes) -> Dataset:
    """Read a DICOM file. If only the delimiter after complete pixel items is missing, add it for pydicom."""
    try:
        dataset = read_dicom(data)
        if any(name in dataset for name in _PIXEL_FIELDS) or (match := _UNDEFINED_LENGTH.search(data)) is None:
            return dataset
        end = match.end()
        while data[end : end + 4] == _ITEM_START:
            end += 8 + int.from_bytes(data[end + 4 : end + 8], "little")
        return read_dicom(data[:end] + _SEQUENCE_END) if end <= len(data) else dataset
    except HeaderError as error:
        raise Rejected("undecodable", f"header: {error}") from None


def _decode_with_gdcm(path: str, dataset: Dataset) -> np.ndarray:
    """Decode a 12-bit JPEG with GDCM directly, because only GDCM can, and pydicom does not use GDCM for this syntax."""
    import gdcm

    reader = gdcm.ImageReader()
    reader.SetFileName(str(path))
    if not reader.Read():
        raise ValueError("GDCM cannot read the file")
    image = reader.GetImage()
    buffer = image.GetBuffer()
    data = buffer.encode("utf-8", "surrogateescape") if isinstance(buffer, str) else bytes(buffer)
    kind = np.dtype(f"{'i' if dataset.get('PixelRepresentation', 0) else 'u'}{int(dataset.BitsAllocated) // 8}")
    return np.frombuffer(data, kind).reshape(int(dataset.Rows), int(dataset.Columns))


def _decode_stored(path: str, dataset: Dataset) -> np.ndarray:
    """Decode stored values (rows, columns) or colours (rows, columns, 3). Unused bits stay in the values."""
    syntax = dataset.file_meta.TransferSyntaxUID
    failure = "no decoder for its transfer syntax"
    decode_with = partial(pixel_array, dataset, index=0, correct_unused_bits=False)
    decoders = [partial(decode_with, decoding_plugin=name) for name in _DECODERS.get(syntax, ("",))]
    if syntax == uid.JPEGExtended12Bit:
        decoders.append(partial(_decode_with_gdcm, path, dataset))
    for decode in decoders:
        try:
            return decode()
        except Exception as error:  # each decoder fails in its own way on damaged pixels
            if out_of_memory(error) or broken_part(error):
                raise
            failure = describe_error(error)
    raise Rejected("undecodable", f"{syntax.name if syntax.is_transfer_syntax else 'unknown syntax'}: {failure}")


def _decode_used_bits(path: str, dataset: Dataset, frame: bytes | None, notes: list[str]) -> np.ndarray:
    """Decode as :func:`_decode_stored`, and remove bits outside the image's range. Add corrections to ``notes``."""
    # Old files store the image in the upper bits. The low bits are kept too, because they are negligible.
    high_bit, stored = get_number(dataset, "HighBit"), get_number(dataset, "BitsStored")
    if high_bit is not None and stored is not None and stored <= high_bit < (get_number(dataset, "BitsAllocated") or 0):
        dataset.BitsStored = int(high_bit) + 1
    codestream = correction.read_codestream(frame) if frame is not None else None
    if codestream is None:
        values = _decode_stored(path, dataset)
    elif codestream.is_signed is None:
        values = _decode_all_bits(path, dataset, codestream)
    else:
        values = _decode_with_smoother_sign(path, dataset, codestream, notes)
    valid = _find_valid_pixels(dataset, values)
    values, bits_notes = correction.keep_used_bits(dataset, values, None if valid is None else ~valid, codestream)
    notes += bits_notes
    return values


def _decode_all_bits(path: str, dataset: Dataset, codestream: Codestream) -> np.ndarray:
    """Decode a JPEG or JPEG-LS with all bits of its codestream. GDCM would drop bits that the header excludes."""
    header = {name: dataset.get(name) for name in ("BitsStored", "HighBit", "PixelRepresentation")}
    if None in header.values():
        return _decode_stored(path, dataset)
    dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = codestream.precision, codestream.precision - 1, 0
    try:
        values = _decode_stored(path, dataset)
    finally:
        dataset.update(header)
    return values.view(f"i{values.dtype.itemsize}") if header["PixelRepresentation"] == 1 else values


def _decode_with_smoother_sign(path: str, dataset: Dataset, codestream: Codestream, notes: list[str]) -> np.ndarray:
    """Decode a JPEG 2000. If codestream and header disagree on the values' sign, return the smoother of both images."""
    values, is_signed = _decode_stored(path, dataset), get_number(dataset, "PixelRepresentation") == 1
    if codestream.is_signed is is_signed or values.ndim != 2:
        return values
    dataset.PixelRepresentation = int(bool(codestream.is_signed))
    as_encoded = _decode_stored(path, dataset)
    if correction.measure_roughness(as_encoded) < correction.measure_roughness(values):
        words = ("unsigned", "signed")
        notes.append(f"codestream is {words[bool(codestream.is_signed)]}, header says {words[is_signed]}")
        return as_encoded
    dataset.PixelRepresentation = int(is_signed)
    return values


def _find_valid_pixels(dataset: Dataset, stored: np.ndarray) -> np.ndarray | None:
    """Return a mask that is False for padding (PS3.3 C.7.5.1.1.2), or None if no pixel or every pixel is padding."""
    first = get_number(dataset, "PixelPaddingValue")
    if first is None or stored.dtype.kind not in "iu":
        return None
    last = get_number(dataset, "PixelPaddingRangeLimit")
    span, limits = 2 ** (8 * stored.dtype.itemsize), np.iinfo(stored.dtype)
    low, high = sorted(
        value - span if value > limits.max else value + span if value < limits.min else value
        for value in (first, first if last is None else last)
    )
    valid = (stored < low) | (stored > high)
    return valid if valid.any() and not valid.all() else None


def _read_table(dataset: Dataset, name: str, is_signed: bool) -> tuple[LookupTable | None, str]:
    """Return (lookup table or None, note on a fault of the table or ""). ``name`` is "Modality" or "VOI"."""
    items = dataset.get(f"{name}LUTSequence")
    if not items:
        return None, ""
    try:
        table = read_lookup_table(items[0], is_signed=is_signed, is_little=dataset.original_encoding[1] is not False)
    except UnusableTable as reason:
        return None, f"its {name} lookup table is ignored: {reason}"
    except Exception as error:  # fuzzed sequences fail in many ways
        return None, f"its {name} lookup table is ignored: {describe_error(error)}"
    return table, f"{name} lookup table: {table.note}" if table.note else ""


def _apply_modality(dataset: Dataset, stored: np.ndarray, notes: list[str]) -> np.ndarray:
    table, note = _read_table(dataset, "Modality", stored.dtype.kind == "i")
    notes += [note] if note else []
    if table is not None:
        return table.apply(stored).astype(np.float32)
    slope, intercept = get_number(dataset, "RescaleSlope"), get_number(dataset, "RescaleIntercept")
    slope, intercept = slope or 1.0, intercept or 0.0
    if (slope, intercept) == (1.0, 0.0):
        return stored
    return stored * np.float32(slope) + np.float32(intercept)


def _make_voi_function(dataset: Dataset, is_signed: bool) -> tuple[Callable[[np.ndarray], np.ndarray] | None, str]:
    """Return (function or None, note on a faulty table). The function maps values to 0..1 by VOI table or window."""
    table, note = _read_table(dataset, "VOI", is_signed and "ModalityLUTSequence" not in dataset)
    if table is not None:
        return table.apply_as_fractions, note
    center, width = get_number(dataset, "WindowCenter"), get_number(dataset, "WindowWidth")
    if center is None or width is None or width <= 0:
        return None, note
    shape = get_text(dataset, "VOILUTFunction")  # PS3.3 C.11.2.1.2-3
    if shape == "SIGMOID":
        return lambda values: 1 / (1 + np.exp(-4 * (np.asarray(values, np.float32) - center) / width)), note
    shift, span = (0.0, width) if shape == "LINEAR_EXACT" else (0.5, max(width - 1, 1e-6))
    return lambda values: np.clip((np.asarray(values, np.float32) - (center - shift)) / span + 0.5, 0, 1), note


def _check_header(data: bytes, dataset: Dataset) -> None:
    if not any(dataset.get(name) for name in _PIXEL_FIELDS):
        # pydicom drops an element that is cut off by the end of the file.
        cut = any(tag in data for tag in _PIXEL_TAGS) and not any(name in dataset for name in _PIXEL_FIELDS)
        raise Rejected("undecodable", "truncated pixel data") if cut else Rejected("no_pixels")
    if (get_number(dataset, "NumberOfFrames") or 1) > 1:
        raise Rejected("multi_frame", f"{get_number(dataset, 'NumberOfFrames'):.0f} frames")
    check_area(int(get_number(dataset, "Rows") or 0), int(get_number(dataset, "Columns") or 0))


def decode_dicom(path: str, data: bytes) -> DecodedImage:
    """Decode a DICOM file of one frame. ``data``: the file's bytes. Raises :class:`Rejected` if that is impossible."""
    dataset = _read_dataset(data)
    _check_header(data, dataset)
    _set_syntax(dataset)
    photometric, shape = get_text(dataset, "PhotometricInterpretation"), get_text(dataset, "PresentationLUTShape")
    is_inverted = photometric == "MONOCHROME1" or (photometric == "MONOCHROME2" and shape == "INVERSE")  # C.11.6
    frame = _read_encoded_frame(dataset)
    if frame is None:
        notes = correction.correct_native_header(dataset)
    else:
        notes = correction.correct_encoded_header(dataset, frame)
        is_complete = _COMPLETENESS_CHECKS.get(dataset.file_meta.TransferSyntaxUID)
        if is_complete and not is_complete(frame):
            raise Rejected("undecodable", "truncated pixel data")
    stored = _decode_used_bits(path, dataset, frame, notes)
    if get_text(dataset, "PhotometricInterpretation") == "PALETTE COLOR":
        try:
            stored = apply_color_lut(stored, dataset)
        except Exception as error:  # fuzzed tables fail in many ways
            raise Rejected("undecodable", f"palette: {describe_error(error)}") from None
    if get_text(dataset, "BurnedInAnnotation").upper() == "YES":
        notes.append("header says that text is burned in")
    turn = get_turn(dataset)
    if turn != UPRIGHT:
        orientation = files.quote_value(get_text(dataset, "PatientOrientation"))
        notes.append(f"turned upright by its PatientOrientation {orientation}")
    if stored.ndim == 3 and stored.shape[2] >= 3:
        luma = compute_luma(stored[..., :3], cv2.COLOR_RGB2GRAY)
        return DecodedImage(luma, is_inverted=is_inverted, turn=turn, notes=notes)
    if stored.ndim != 2 or stored.size == 0:
        raise Rejected("undecodable", f"the pixel data are an array of {stored.ndim} dimensions")
    voi, voi_note = _make_voi_function(dataset, stored.dtype.kind == "i")
    values, valid = _apply_modality(dataset, stored, notes), _find_valid_pixels(dataset, stored)
    return DecodedImage(values, valid, is_inverted, voi, voi_note, turn, notes)
