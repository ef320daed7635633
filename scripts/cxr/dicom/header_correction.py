"""Comparing a DICOM header with its pixel data, and correcting the header if the data show the right value."""

import numpy as np
from pydicom import uid
from pydicom.dataset import Dataset

from cxr.dicom.codestream import Codestream, read_jpeg, read_jpeg_2000
from cxr.dicom.files import Rejected, get_number, get_text

JPEG_LOSSY = (uid.JPEGBaseline8Bit, uid.JPEGExtended12Bit)
JPEG_LOSSLESS = (uid.JPEGLossless, uid.JPEGLosslessSV1)
JPEG_LS = (uid.JPEGLSLossless, uid.JPEGLSNearLossless)
JPEG_2000 = (*uid.JPEG2000TransferSyntaxes, uid.HTJ2K, uid.HTJ2KLossless, uid.HTJ2KLosslessRPCL)
_SYNTAXES_OF_MARKER = {
    **dict.fromkeys((0xC0, 0xC1, 0xC2), JPEG_LOSSY), 0xC3: JPEG_LOSSLESS, 0xF7: JPEG_LS, 0: JPEG_2000,
}  # fmt: skip
_CONTAINERS_OF_SEGMENTS = {1: (1, 8), 2: (1, 16), 3: (3, 8), 6: (3, 16)}  # {RLE segments: (samples, bits)}, PS3.5 G.5
_RLE_HEADER_BYTES = 64  # size of an RLE frame's header, bytes; the first segment starts there
_MAX_ROUGHNESS_RATIO, _MAX_OVERLAY_CHANGES = 0.7, 0.05
"""Two limits for :func:`keep_used_bits`, measured on radiographs of 256 and 1024 px. The removal of noise or sign bits
at least halves the roughness (:func:`measure_roughness`). Overlay bits differ in 1 % of the pairs of neighbouring
pixels, image bits in 5 to 50 % of the pairs."""
_NOISE_DIFFERENCE = 0.2
"""Mean difference between neighbours, as a fraction of the range, above which values count as noise. Pure noise has
1/3. A radiograph of 256 px has 0.02. It has 0.06, 0.10, 0.15, 0.21, 0.25 without its highest 1, 2, 3, 4, 5 bits."""
_GREY, _COLOUR = ("MONOCHROME1", "MONOCHROME2"), ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_RCT", "YBR_ICT")
_SUBSAMPLED = "YBR_FULL_422"


def read_codestream(frame: bytes) -> Codestream | None:
    """Return the header of the codestream in a frame, or None if the frame has no such header (RLE, native data)."""
    return read_jpeg(frame) if frame.startswith(b"\xff\xd8") else read_jpeg_2000(frame)


def correct_encoded_header(dataset: Dataset, frame: bytes) -> list[str]:
    """Correct a compressed image's header to agree with the encoded ``frame``. Return a note for each correction.

    Raises :class:`Rejected` if header and frame differ in a way that a damaged file could also explain.
    """
    codestream = read_codestream(frame)
    if codestream is not None:
        is_deep = codestream.marker in (0xC0, 0xC1, 0xC2) and codestream.precision != 8
        fitting = (uid.JPEGExtended12Bit,) if is_deep else _SYNTAXES_OF_MARKER.get(codestream.marker, ())
        notes = _correct_syntax(dataset, fitting)
        notes += _correct_size(dataset, codestream)
        notes += _correct_samples(dataset, codestream.components, "RGB" if codestream.is_rgb else "YBR_FULL")
        return notes + _correct_bits(dataset, codestream.precision)
    segments, first = (int.from_bytes(frame[at : at + 4], "little") for at in (0, 4))
    if segments in _CONTAINERS_OF_SEGMENTS and first == _RLE_HEADER_BYTES:
        return _correct_syntax(dataset, (uid.RLELossless,)) + _correct_rle(dataset, frame, segments)
    return []


def correct_native_header(dataset: Dataset) -> list[str]:
    """Correct the header of an uncompressed image by the length of its data. Return a note for each correction.

    A field is corrected only if it contradicts another field. Raises :class:`Rejected` if the data are long enough for
    two or more images. Data that are too short are left to the decoder.
    """
    syntax = dataset.file_meta.TransferSyntaxUID
    notes = []
    if syntax.is_transfer_syntax and syntax.is_encapsulated:
        notes.append(f"pixel data are not compressed, header says {syntax.name}")
        dataset.file_meta.TransferSyntaxUID = uid.ExplicitVRLittleEndian
    samples, allocated = _get_integer(dataset, "SamplesPerPixel", 1), _get_integer(dataset, "BitsAllocated", 0)
    photometric = get_text(dataset, "PhotometricInterpretation")
    if "PixelData" not in dataset or allocated not in (8, 16) or samples not in (1, 3) or photometric == _SUBSAMPLED:
        return notes
    area = _get_integer(dataset, "Rows", 0) * _get_integer(dataset, "Columns", 0)
    length = len(dataset.PixelData)

    def fits(bits: int, channels: int) -> bool:
        return length in ((size := area * channels * bits // 8), size + size % 2)

    if fits(allocated, samples):
        return notes
    stored = _get_integer(dataset, "BitsStored", allocated)
    bits = 16 if allocated == 8 < stored else 8 if stored <= 8 else allocated
    channels = 3 if photometric in _COLOUR else 1 if photometric in _GREY else samples
    if (bits, channels) != (allocated, samples) and fits(bits, channels):
        dataset.BitsAllocated, dataset.SamplesPerPixel = bits, channels
        if channels == 3 and "PlanarConfiguration" not in dataset:
            dataset.PlanarConfiguration = 0
        return [*notes, f"pixel data have {channels} x {bits} bits per pixel, header says {samples} x {allocated}"]
    expected = area * samples * allocated // 8
    if length >= 2 * expected:
        raise Rejected("undecodable", f"pixel data have {length} bytes, header says {expected}")
    return notes


def _correct_syntax(dataset: Dataset, fitting: tuple[uid.UID, ...]) -> list[str]:
    syntax = dataset.file_meta.TransferSyntaxUID
    if not fitting or syntax in fitting:
        return []
    dataset.file_meta.TransferSyntaxUID = fitting[0]
    header_syntax = syntax.name if syntax.is_transfer_syntax else "an unknown syntax"
    return [f"codestream is {fitting[0].name}, header says {header_syntax}"]


def _correct_size(dataset: Dataset, codestream: Codestream) -> list[str]:
    size = codestream.rows, codestream.columns
    header_size = _get_integer(dataset, "Rows", 0), _get_integer(dataset, "Columns", 0)
    if size == header_size or not codestream.rows:  # a JPEG may give its number of rows after the first scan
        return []
    sentence = f"codestream is {size[0]} x {size[1]}, header says {header_size[0]} x {header_size[1]}"
    if size != header_size[::-1]:
        raise Rejected("undecodable", sentence)
    dataset.Rows, dataset.Columns = size
    return [sentence]


def _correct_samples(dataset: Dataset, components: int, colours: str) -> list[str]:
    """Set SamplesPerPixel, and PhotometricInterpretation if it does not fit (``colours``: value for 3 components)."""
    header_samples = _get_integer(dataset, "SamplesPerPixel", 1)
    photometric = get_text(dataset, "PhotometricInterpretation")
    if components == header_samples and (photometric in _GREY) is (components == 1):
        return []
    sentence = f"codestream has {components} component{'s' if components > 1 else ''}, header says {header_samples}"
    if components == header_samples:
        sentence = f"codestream has {components} components, header says {photometric or 'nothing about colours'}"
    if photometric not in (*_GREY, *_COLOUR):
        return []  # the decoder handles palettes and unknown words
    if components not in (1, 3):
        raise Rejected("undecodable", sentence)
    dataset.SamplesPerPixel = components
    if components == 3:
        dataset.PhotometricInterpretation, dataset.PlanarConfiguration = colours, 0
    elif photometric not in _GREY:
        dataset.PhotometricInterpretation = "MONOCHROME2"
    return [sentence]


def _correct_bits(dataset: Dataset, precision: int) -> list[str]:
    """Set BitsAllocated to the width that decoders return for ``precision`` bits. Limit BitsStored to ``precision``."""
    dataset.BitsAllocated = 8 if precision <= 8 else 16 if precision <= 16 else 32
    stored = _get_integer(dataset, "BitsStored", precision)
    if stored <= precision:
        return []
    dataset.BitsStored, dataset.HighBit = precision, precision - 1
    return [f"codestream has {precision} bits per sample, header says {stored}"]


def _correct_rle(dataset: Dataset, frame: bytes, segments: int) -> list[str]:
    second = int.from_bytes(frame[8:12], "little") if segments > 1 else len(frame)
    values = _count_rle_bytes(frame[_RLE_HEADER_BYTES:second])
    rows, columns = _get_integer(dataset, "Rows", 0), _get_integer(dataset, "Columns", 0)
    if values >= 2 * rows * columns:
        raise Rejected("undecodable", f"codestream has {values} values, header says {rows} x {columns}")
    samples, allocated = _get_integer(dataset, "SamplesPerPixel", 1), _get_integer(dataset, "BitsAllocated", 0)
    if segments == samples * allocated // 8:
        return []
    components, bits = _CONTAINERS_OF_SEGMENTS[segments]
    notes = _correct_samples(dataset, components, "RGB")
    if bits != allocated:
        notes.append(f"codestream has {bits} bits per sample, header allocates {allocated}")
        stored = _get_integer(dataset, "BitsStored", bits)
        dataset.BitsAllocated = bits
        dataset.BitsStored = bits if allocated < bits else min(stored, bits)
    return notes


def _count_rle_bytes(segment: bytes) -> int:
    at = length = 0
    while at < len(segment):
        code = segment[at]
        if code < 128:
            length, at = length + code + 1, at + code + 2
        else:
            length, at = length + (257 - code) % 129, at + 1 + (code > 128)
    return length


def keep_used_bits(
    dataset: Dataset, values: np.ndarray, padding: np.ndarray | None, codestream: Codestream | None
) -> tuple[np.ndarray, list[str]]:
    """Remove bits that are not part of the image. Return the values, and a list with a note if BitsStored is wrong.

    ``values`` are decoded integers, ``padding`` masks padding pixels, and ``codestream`` is None for native data.
    The bits above BitsStored may be an overlay (PS3.5 8.1.2), copies of the sign, or undefined. But if BitsStored is
    too small, these bits belong to the image, and removing them causes jumps in brightness.
    """
    size, stored = 8 * values.dtype.itemsize, _get_integer(dataset, "BitsStored", 0)
    if values.dtype.kind not in "iu" or not 0 < stored < size:
        return values, []
    by_header = _keep_lowest_bits(values, stored)
    differs = by_header != values
    if not (differs if padding is None else differs & ~padding).any():
        return values, []
    groups = {tag.group for tag in list(dataset.keys()) if 0x6000 <= tag.group <= 0x601E}
    # a group 60xx without overlay data: the overlay is stored in bits of the pixel data
    if any((group, 0x0102) in dataset and (group, 0x3000) not in dataset for group in groups):
        return by_header, []
    candidates = [by_header, values]
    if codestream is not None and codestream.precision < size:
        # an encoder that writes all bits of a word does not tell how many bits are used
        by_codestream = _keep_lowest_bits(values, codestream.precision)
        candidates = [by_codestream] if values.dtype.kind == "u" else [by_header, by_codestream, values]
    # values that lose several high bits look like noise of a small range, which would count as smooth
    limits = [2 * _NOISE_DIFFERENCE * image.size * np.ptp(image.astype(np.int64)) for image in candidates]
    smooth = [image for image, limit in zip(candidates, limits, strict=True) if measure_roughness(image) <= limit]
    best = min(smooth or candidates, key=measure_roughness)
    if best is by_header:
        # Noise and sign bits make an image much rougher. An overlay does this too, or differs between few neighbours.
        changes = np.mean([np.mean(np.diff(values - by_header, axis=axis) != 0) for axis in (0, 1)])
        is_rough = measure_roughness(by_header) > _MAX_ROUGHNESS_RATIO * measure_roughness(values)
        if len(candidates) == 2 and is_rough and changes > _MAX_OVERLAY_CHANGES:
            raise Rejected("undecodable", f"values need more bits than BitsStored {stored}")
        return best, []
    if codestream is not None and best.dtype.kind == "u":
        return best, [f"codestream has {codestream.precision} bits per sample, header says {stored}"]
    num_bits = max(int(best.max()), -int(best.min()) - 1).bit_length() + (best.dtype.kind == "i")
    return best, [f"values need {num_bits} bits, header says BitsStored {stored}"]


def _keep_lowest_bits(values: np.ndarray, bits: int) -> np.ndarray:
    """Return the lowest ``bits`` bits of the values. In signed types, the highest of these bits becomes the sign."""
    spare = 8 * values.dtype.itemsize - bits
    return (values << spare) >> spare


def measure_roughness(values: np.ndarray) -> float:
    """Return the sum of the absolute differences between neighbouring pixels. Lost high bits increase this sum."""
    wide = values.astype(np.int64)
    return float(sum(np.abs(np.diff(wide, axis=axis)).sum(dtype=np.float64) for axis in (0, 1)))


def _get_integer(dataset: Dataset, name: str, default: int) -> int:
    value = get_number(dataset, name)
    return default if value is None else int(value)
