"""Decoding DICOM pixel data of any transfer syntax; incomplete data are rejected."""

from collections.abc import Callable

import cv2
import numpy as np
from pydicom import uid
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import generate_frames
from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_voi, get_decoder, pixel_array

from cxr.base.errors import out_of_memory
from cxr.base.faults import broken
from cxr.dicom.files import HeaderError, Rejected, number_of, read_dicom, sentence_of, text_of
from cxr.dicom.picture import Picture, check_area, luma
from cxr.dicom.raster import jpeg_is_complete

_JPEG = (uid.JPEGBaseline8Bit, uid.JPEGExtended12Bit, uid.JPEGLossless, uid.JPEGLosslessSV1)
_JPEG_LS = (uid.JPEGLSLossless, uid.JPEGLSNearLossless)
_JPEG_2000 = (*uid.JPEG2000TransferSyntaxes, uid.HTJ2K, uid.HTJ2KLossless, uid.HTJ2KLosslessRPCL)
_START_OF_DATA = b"\xff\x93"
# A fixed order, so that lossy images have the same pixels everywhere; the fastest reliable decoder first.
_DECODERS = {
    **dict.fromkeys(_JPEG[:2], ("pillow", "gdcm", "pylibjpeg")),
    **dict.fromkeys(_JPEG[2:], ("gdcm", "pylibjpeg")),
    **dict.fromkeys(_JPEG_LS, ("pyjpegls", "gdcm", "pylibjpeg")),
    **dict.fromkeys(_JPEG_2000, ("pylibjpeg", "gdcm", "pillow")),
    uid.RLELossless: ("pydicom",),
}
_PIXEL_FIELDS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_PIXEL_TAGS = (b"\xe0\x7f\x10\x00", b"\x7f\xe0\x00\x10")


def lacking() -> list[str]:
    """Return the decoders that this Python lacks, in pydicom's words; without them, files would be excluded."""
    said = set()
    for syntax, names in _DECODERS.items():
        try:
            missing = get_decoder(syntax).missing_dependencies
        except NotImplementedError:  # a part of the standard that pydicom does not implement
            continue
        said |= {line for line in missing if line.partition(" ")[0] in names}
    return sorted(said)


def _set_syntax(dataset: Dataset) -> uid.UID:
    meta = getattr(dataset, "file_meta", None)
    if meta is None:
        meta = dataset.file_meta = FileMetaDataset()
    if not meta.get("TransferSyntaxUID"):
        implicit, little = dataset.original_encoding
        explicit = uid.ExplicitVRLittleEndian if little else uid.ExplicitVRBigEndian
        meta.TransferSyntaxUID = uid.ImplicitVRLittleEndian if implicit else explicit
    return meta.TransferSyntaxUID


def _check_complete(dataset: Dataset, syntax: uid.UID) -> None:
    """Raise :class:`Rejected` for a codestream without its end; native and RLE lengths are checked by pydicom."""
    if syntax not in (*_JPEG, *_JPEG_LS, *_JPEG_2000):
        return
    try:
        frame = next(generate_frames(dataset.PixelData, number_of_frames=1))
    except Exception as error:  # fuzzed fragments fail in many ways
        raise Rejected("undecodable", f"pixel data: {sentence_of(error)}") from None
    whole = jpeg_is_complete(frame, _START_OF_DATA) if syntax in _JPEG_2000 else jpeg_is_complete(frame)
    if not whole:
        raise Rejected("undecodable", "truncated pixel data")


def _decode_with_gdcm(path: str, dataset: Dataset) -> np.ndarray:
    """Decode with GDCM itself: pydicom does not let it read 12-bit JPEG, which the other decoders cannot."""
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


def _stored_values(path: str, dataset: Dataset, syntax: uid.UID) -> np.ndarray:
    """Return stored values (rows, columns) or colours (rows, columns, 3)."""
    # Old files store the image in the upper bits: all bits are used, because the low ones are negligible.
    high_bit, stored = number_of(dataset, "HighBit"), number_of(dataset, "BitsStored")
    if high_bit is not None and stored is not None and stored <= high_bit < (number_of(dataset, "BitsAllocated") or 0):
        dataset.BitsStored = int(high_bit) + 1
    failure = "no decoder for its transfer syntax"
    for decoder in _DECODERS.get(syntax, ("",)):
        try:
            return pixel_array(dataset, index=0, decoding_plugin=decoder)
        except Exception as error:  # each decoder fails in its own way on damaged pixels
            if out_of_memory(error) or broken(error):
                raise
            failure = sentence_of(error)
    if syntax == uid.JPEGExtended12Bit:
        try:
            return _decode_with_gdcm(path, dataset)
        except Exception as error:  # as above
            if out_of_memory(error) or broken(error):
                raise
            failure = sentence_of(error)
    raise Rejected("undecodable", f"{syntax.name if syntax.is_transfer_syntax else 'unknown syntax'}: {failure}")


def _padding(dataset: Dataset, stored: np.ndarray) -> np.ndarray | None:
    """Return a bool mask, False for padding values (PS3.3 C.7.5.1.1.2); None if all are valid."""
    first = number_of(dataset, "PixelPaddingValue")
    if first is None or stored.dtype.kind not in "iu":
        return None
    last = number_of(dataset, "PixelPaddingRangeLimit")
    span, limits = 2 ** (8 * stored.dtype.itemsize), np.iinfo(stored.dtype)
    low, high = sorted(
        value - span if value > limits.max else value + span if value < limits.min else value
        for value in (first, first if last is None else last)
    )
    valid = (stored < low) | (stored > high)
    return valid if valid.any() and not valid.all() else None


def _modality(dataset: Dataset, stored: np.ndarray) -> np.ndarray:
    if "ModalityLUTSequence" in dataset:
        try:
            return np.asarray(apply_modality_lut(stored, dataset), np.float32)
        except Exception:  # an unusable table is ignored, the image is still usable
            return stored
    slope, intercept = number_of(dataset, "RescaleSlope"), number_of(dataset, "RescaleIntercept")
    slope, intercept = slope or 1.0, intercept or 0.0
    if (slope, intercept) == (1.0, 0.0):
        return stored
    return stored * np.float32(slope) + np.float32(intercept)


def window_function(center: float, width: float, shape: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the mapping of values to 0..1 by a window (PS3.3 C.11.2.1.2-3); ``shape`` is VOILUTFunction."""
    if shape == "SIGMOID":
        return lambda values: 1 / (1 + np.exp(-4 * (np.asarray(values, np.float32) - center) / width))
    shift, span = (0.0, width) if shape == "LINEAR_EXACT" else (0.5, max(width - 1, 1e-6))
    return lambda values: np.clip((np.asarray(values, np.float32) - (center - shift)) / span + 0.5, 0, 1)


def _voi(dataset: Dataset) -> Callable[[np.ndarray], np.ndarray] | None:
    if dataset.get("VOILUTSequence"):

        def table(values: np.ndarray) -> np.ndarray:
            bits = int(dataset.VOILUTSequence[0].LUTDescriptor[2])
            return apply_voi(np.rint(values).astype(np.int32), dataset).astype(np.float32) / (2**bits - 1)

        return table
    center, width = number_of(dataset, "WindowCenter"), number_of(dataset, "WindowWidth")
    if center is None or width is None or width <= 0:
        return None
    return window_function(center, width, text_of(dataset, "VOILUTFunction"))


def _check_header(data: bytes, dataset: Dataset, max_pixels: int) -> None:
    if not any(dataset.get(name) for name in _PIXEL_FIELDS):
        # pydicom drops an element that the end of the file truncates.
        cut = any(tag in data for tag in _PIXEL_TAGS) and not any(name in dataset for name in _PIXEL_FIELDS)
        raise Rejected("undecodable", "truncated pixel data") if cut else Rejected("no_pixels")
    if (number_of(dataset, "NumberOfFrames") or 1) > 1:
        raise Rejected("multi_frame", f"{number_of(dataset, 'NumberOfFrames'):.0f} frames")
    check_area(int(number_of(dataset, "Rows") or 0), int(number_of(dataset, "Columns") or 0), max_pixels)


def decode_dicom(path: str, data: bytes, max_pixels: int) -> Picture:
    """Decode the single frame of a DICOM file; ``data``: the file's bytes. Raises :class:`Rejected`."""
    try:
        dataset = read_dicom(data)
    except HeaderError as error:
        raise Rejected("undecodable", f"header: {error}") from None
    _check_header(data, dataset, max_pixels)
    syntax = _set_syntax(dataset)
    _check_complete(dataset, syntax)
    stored = _stored_values(path, dataset, syntax)
    if text_of(dataset, "PhotometricInterpretation") == "PALETTE COLOR":
        try:
            stored = apply_color_lut(stored, dataset)
        except Exception as error:  # fuzzed tables fail in many ways
            raise Rejected("undecodable", f"palette: {sentence_of(error)}") from None
    if stored.ndim == 3 and stored.shape[2] >= 3:
        return Picture(luma(stored[..., :3], cv2.COLOR_RGB2GRAY))
    if stored.ndim != 2 or stored.size == 0:
        raise Rejected("undecodable", f"an array of {stored.ndim} dimensions")
    return Picture(
        values=_modality(dataset, stored),
        valid=_padding(dataset, stored),
        inverted=text_of(dataset, "PhotometricInterpretation") == "MONOCHROME1",
        voi=_voi(dataset),
    )
