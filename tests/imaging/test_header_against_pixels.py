"""Headers that contradict their pixel data: corrected with a note, or refused with a detail that names both."""

import io
import struct

import cv2
import numpy as np
import pytest
from pydicom import dcmread, uid
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate

from cxr.dicom.codestream import is_complete_jpeg, read_jpeg, read_jpeg_2000
from cxr.dicom.decode import decode_file
from cxr.dicom.files import Rejected
from cxr.dicom.image import DecodedImage
from dicom_files import LOSSLESS, NATIVE, dataset, encoded, nih_picture, picture, stored_values, write

JPEG, JPEG_LS, J2K, RLE = uid.JPEGLosslessSV1, uid.JPEGLSLossless, uid.JPEG2000Lossless, uid.RLELossless
BASELINE, PLAIN = uid.JPEGBaseline8Bit, uid.ExplicitVRLittleEndian
TWELVE, EIGHT = stored_values(picture(), 12, False), stored_values(picture(), 8, False)
SIGNED = stored_values(picture(), 12, True)
GREY = np.dstack([EIGHT] * 3)


def relabelled(data: bytes, syntax: uid.UID | None = None, **tags: object) -> bytes:
    """Return a file with other header elements and the same pixel data."""
    made = dcmread(io.BytesIO(data))
    for name, value in tags.items():
        setattr(made, name, value)
    if syntax:
        made.file_meta.TransferSyntaxUID = syntax
    file = io.BytesIO()
    made.save_as(file)
    return file.getvalue()


def colours(syntax: uid.UID) -> bytes:
    """Return a file of three equal components."""
    made = dataset(GREY, SamplesPerPixel=3, PhotometricInterpretation="RGB", PlanarConfiguration=0)
    if syntax != BASELINE:
        return encoded(made, syntax)
    return relabelled(encoded(dataset(EIGHT), BASELINE), PixelData=encapsulate([jpeg_of(GREY)]))


def jpeg_of(pixels: np.ndarray, *options: int) -> bytes:
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, 95, *options])[1].tobytes()


def decoded(folder, data: bytes) -> DecodedImage:
    return decode_file(write(folder, data))


def detail_of(folder, data: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        decoded(folder, data)
    assert caught.value.reason == "undecodable"
    return caught.value.detail


CORRECTED = [
    # bits: too few in the header
    (PLAIN, TWELVE, 12, {"BitsStored": 10, "HighBit": 9}, "values need 12 bits, header says BitsStored 10"),
    (RLE, TWELVE, 12, {"BitsStored": 10, "HighBit": 9}, "values need 12 bits, header says BitsStored 10"),
    (JPEG, TWELVE, 12, {"BitsStored": 10, "HighBit": 9}, "codestream has 16 bits per sample, header says 10"),
    (JPEG_LS, TWELVE, 12, {"BitsStored": 10, "HighBit": 9}, "codestream has 12 bits per sample, header says 10"),
    (JPEG_LS, TWELVE, 12, {"BitsStored": 8, "HighBit": 7}, "codestream has 12 bits per sample, header says 8"),
    (J2K, TWELVE, 12, {"BitsStored": 10, "HighBit": 9}, "codestream has 12 bits per sample, header says 10"),
    (J2K, TWELVE, 12, {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7},
     "codestream has 12 bits per sample, header says 8"),
    (JPEG_LS, TWELVE, 12, {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7},
     "codestream has 12 bits per sample, header says 8"),
    (RLE, TWELVE, 12, {"BitsAllocated": 8, "BitsStored": 8, "HighBit": 7},
     "codestream has 16 bits per sample, header allocates 8"),
    # bits: too many in the header
    (JPEG_LS, TWELVE, 12, {"BitsStored": 16, "HighBit": 15}, "codestream has 12 bits per sample, header says 16"),
    (J2K, TWELVE, 12, {"BitsStored": 16, "HighBit": 15}, "codestream has 12 bits per sample, header says 16"),
    (J2K, EIGHT, 8, {"BitsAllocated": 16, "BitsStored": 12, "HighBit": 11},
     "codestream has 8 bits per sample, header says 12"),
    (RLE, EIGHT, 8, {"BitsAllocated": 16}, "codestream has 8 bits per sample, header allocates 16"),
    (PLAIN, EIGHT, 8, {"BitsAllocated": 16}, "pixel data have 1 x 8 bits per pixel, header says 1 x 16"),
    (PLAIN, TWELVE, 12, {"BitsAllocated": 8}, "pixel data have 1 x 16 bits per pixel, header says 1 x 8"),
    # size
    *((syntax, TWELVE, 12, {"Rows": 80, "Columns": 96}, "codestream is 96 x 80, header says 80 x 96")
      for syntax in (JPEG, JPEG_LS, J2K)),
    # components
    *((syntax, EIGHT, 8, {"SamplesPerPixel": 3, "PhotometricInterpretation": "RGB", "PlanarConfiguration": 0},
       "codestream has 1 component, header says 3") for syntax in (JPEG, JPEG_LS, J2K, RLE)),
    # sign
    (J2K, TWELVE, 12, {"PixelRepresentation": 1}, "codestream is unsigned, header says signed"),
    (J2K, SIGNED, 12, {"PixelRepresentation": 0}, "codestream is signed, header says unsigned"),
    (PLAIN, TWELVE, 12, {"PixelRepresentation": 1}, "values need 13 bits, header says BitsStored 12"),
    (JPEG_LS, TWELVE, 12, {"PixelRepresentation": 1}, "values need 13 bits, header says BitsStored 12"),
]  # fmt: skip


@pytest.mark.parametrize(("syntax", "values", "bits", "tags", "note"), CORRECTED)
def test_a_wrong_header_is_corrected_and_noted(tmp_path, syntax, values, bits, tags, note):
    made = relabelled(encoded(dataset(values, bits), syntax), **tags)
    result = decoded(tmp_path, made)
    assert np.array_equal(result.values, values)
    assert result.notes == [note]


@pytest.mark.parametrize("syntax", [BASELINE, JPEG, JPEG_LS, J2K, RLE], ids=lambda syntax: syntax.name)
@pytest.mark.parametrize("photometric", ["MONOCHROME2", "MONOCHROME1"])
def test_three_components_said_to_be_grey(tmp_path, syntax, photometric):
    tags = {"SamplesPerPixel": 1, "PhotometricInterpretation": photometric}
    result = decoded(tmp_path, relabelled(colours(syntax), **tags))
    assert np.abs(result.values.astype(int) - EIGHT).max() <= (8 if syntax == BASELINE else 0)
    assert result.is_inverted is (photometric == "MONOCHROME1")
    assert result.notes == ["codestream has 3 components, header says 1"]


@pytest.mark.parametrize(
    "tags", [{}, {"BitsAllocated": 16, "BitsStored": 8, "HighBit": 7}, {"BitsStored": 16, "HighBit": 15}]
)
@pytest.mark.parametrize("swapped", [False, True])
def test_a_jpeg_of_8_bits_under_any_header(tmp_path, tags, swapped):
    size = {"Rows": 80, "Columns": 96} if swapped else {}
    data = relabelled(encoded(dataset(EIGHT), BASELINE), **tags, **size)
    result = decoded(tmp_path, data)
    assert np.abs(result.values.astype(int) - EIGHT).max() <= 8
    assert len(result.notes) == swapped + (tags.get("BitsStored") == 16)


@pytest.mark.parametrize("syntax", LOSSLESS, ids=lambda syntax: syntax.name)
@pytest.mark.parametrize(("values", "bits"), [(TWELVE, 12), (EIGHT, 8), (SIGNED, 12)])
def test_a_right_header_is_not_corrected(tmp_path, syntax, values, bits):
    result = decoded(tmp_path, encoded(dataset(values, bits), syntax))
    assert np.array_equal(result.values, values)
    assert result.notes == []


@pytest.mark.parametrize(
    ("syntax", "tags", "detail"),
    [
        *((syntax, {"Rows": 97}, "codestream is 96 x 80, header says 97 x 80") for syntax in (JPEG, JPEG_LS, J2K)),
        *((syntax, {"Columns": 40}, "codestream is 96 x 80, header says 96 x 40") for syntax in (JPEG, JPEG_LS, J2K)),
        (RLE, {"Columns": 40}, "codestream has 7680 values, header says 96 x 40"),
        (PLAIN, {"Columns": 40}, "pixel data have 15360 bytes, header says 7680"),
        (PLAIN, {"BitsAllocated": 8, "BitsStored": 8}, "pixel data have 15360 bytes, header says 7680"),
    ],
)
def test_a_contradiction_that_may_be_damage_is_named(tmp_path, syntax, tags, detail):
    assert detail_of(tmp_path, relabelled(encoded(dataset(TWELVE, 12), syntax), **tags)) == detail


def test_colours_in_native_data_said_to_be_grey_are_named(tmp_path):
    data = relabelled(colours(PLAIN), SamplesPerPixel=1, PhotometricInterpretation="MONOCHROME2")
    assert detail_of(tmp_path, data) == "pixel data have 23040 bytes, header says 7680"
    result = decoded(tmp_path, relabelled(colours(PLAIN), SamplesPerPixel=1))
    assert np.abs(result.values.astype(int) - EIGHT).max() <= 1
    assert result.notes == ["pixel data have 3 x 8 bits per pixel, header says 1 x 8"]


def test_a_decompression_bomb_is_not_decoded(tmp_path):
    """A codestream may be as large as it likes: the header's size is what passed the check."""
    data = encoded(dataset(TWELVE, 12), JPEG_LS)
    at = data.index(b"\xff\xf7") + 5
    assert detail_of(tmp_path, data[:at] + struct.pack(">HH", 60000, 60000) + data[at + 4 :]) == (
        "codestream is 60000 x 60000, header says 96 x 80"
    )


@pytest.mark.parametrize(
    ("made", "said", "note"),
    [
        (BASELINE, J2K, "codestream is JPEG Baseline (Process 1), header says JPEG 2000 Image Compression (Lossless"
         " Only)"),
        (J2K, BASELINE, "codestream is JPEG 2000 Image Compression (Lossless Only), header says JPEG Baseline"
         " (Process 1)"),
        (JPEG_LS, PLAIN, "codestream is JPEG-LS Lossless Image Compression, header says Explicit VR Little Endian"),
        (RLE, JPEG_LS, "codestream is RLE Lossless, header says JPEG-LS Lossless Image Compression"),
    ],
)  # fmt: skip
def test_a_wrong_transfer_syntax(tmp_path, made, said, note):
    data = encoded(dataset(EIGHT), made)
    wrong = data.replace(made.encode().ljust(len(made) + len(made) % 2, b"\0"), b"", 1)
    start = data.index(made.encode()) - 2
    element = data[start : start + 2 + len(made) + len(made) % 2]
    text = said.encode() + b"\0" * (len(said) % 2)
    wrong = data.replace(element, len(text).to_bytes(2, "little") + text, 1)
    length = int.from_bytes(wrong[140:144], "little") + len(text) + 2 - len(element)
    result = decoded(tmp_path, wrong[:140] + length.to_bytes(4, "little") + wrong[144:])
    assert np.abs(result.values.astype(int) - EIGHT).max() <= (8 if made == BASELINE else 0)
    assert result.notes[0] == note


# --------------------------------------------------------------------------------------- unused bits


def overlaid(bit: int, share: float = 0.7) -> np.ndarray:
    return TWELVE | np.where(picture() > share, 1 << bit, 0).astype(np.uint16)


@pytest.mark.parametrize("bit", [12, 13, 15])
@pytest.mark.parametrize("syntax", [*NATIVE, RLE, JPEG], ids=lambda syntax: syntax.name)
@pytest.mark.parametrize("is_declared", [False, True])
def test_an_overlay_above_the_stored_bits_is_left_out(tmp_path, bit, syntax, is_declared):
    made = dataset(overlaid(bit), 12)
    if is_declared:
        for element, vr, value in ((0x10, "US", 96), (0x11, "US", 80), (0x100, "US", 16), (0x102, "US", bit)):
            made.add_new((0x6000, element), vr, value)
    result = decoded(tmp_path, encoded(made, syntax))
    assert np.array_equal(result.values, TWELVE)
    assert result.notes == []


def test_a_real_image_with_too_few_stored_bits(tmp_path, shared):
    for bits, stored in ((12, 8), (12, 10), (12, 11), (14, 12), (16, 10), (16, 14)):
        values = stored_values(nih_picture(shared), bits, False)
        made = dataset(values, stored)
        result = decoded(tmp_path, encoded(made))
        assert np.array_equal(result.values, values), (bits, stored)
        assert result.notes == [f"values need {bits} bits, header says BitsStored {stored}"]


def test_bits_above_the_stored_ones_that_may_be_anything_are_named(tmp_path):
    grain = np.random.default_rng(0).integers(0, 130, (160, 128))
    stripes = 256 * (np.arange(128) // 8 % 2)
    values = (grain + np.arange(128) * 125 // 127 + stripes).astype(np.uint16)
    assert detail_of(tmp_path, encoded(dataset(values, 8))) == "values need more bits than BitsStored 8"


def test_signed_values_whose_high_bits_are_zero(tmp_path):
    made = dataset((SIGNED & 0xFFF).astype(np.int16), 12, PixelRepresentation=1)
    result = decoded(tmp_path, encoded(made))
    assert np.array_equal(result.values, SIGNED)
    assert result.notes == []


def test_padding_above_the_stored_bits_is_padding(tmp_path):
    values = TWELVE.copy()
    values[:10] = 65535
    result = decoded(tmp_path, encoded(dataset(values, 12, PixelPaddingValue=65535)))
    assert not result.valid[:10].any()
    assert result.valid[10:].all()
    assert np.array_equal(result.values[10:], TWELVE[10:])
    assert result.notes == []


# ------------------------------------------------------------------------------------------ polarity


@pytest.mark.parametrize(
    ("photometric", "shape", "inverted"),
    [
        ("MONOCHROME2", None, False), ("MONOCHROME2", "IDENTITY", False), ("MONOCHROME2", "INVERSE", True),
        ("MONOCHROME1", None, True), ("MONOCHROME1", "IDENTITY", True), ("MONOCHROME1", "INVERSE", True),
        ("MONOCHROME2", "inverse ", True), ("MONOCHROME2", "NONE", False),
    ],
)  # fmt: skip
def test_polarity(tmp_path, photometric, shape, inverted):
    tags = {"PresentationLUTShape": shape} if shape else {}
    assert (
        decoded(tmp_path, encoded(dataset(EIGHT, PhotometricInterpretation=photometric, **tags))).is_inverted
        is inverted
    )


# ---------------------------------------------------------------------------------- ends of the data


@pytest.mark.parametrize("syntax", [BASELINE, JPEG, JPEG_LS, J2K, RLE], ids=lambda syntax: syntax.name)
def test_pixel_data_without_their_delimiter(tmp_path, syntax):
    values, bits = (EIGHT, 8) if syntax == BASELINE else (TWELVE, 12)
    data = encoded(dataset(values, bits), syntax)
    assert data.endswith(b"\xfe\xff\xdd\xe0\0\0\0\0")
    whole = decoded(tmp_path, data).values
    assert np.array_equal(decoded(tmp_path, data[:-8]).values, whole)
    assert np.array_equal(decoded(tmp_path, data[:-4]).values, whole)
    for cut in (10, 12, 200):
        detail_of(tmp_path, data[:-cut])


def test_a_trailer_that_holds_the_start_of_a_scan(tmp_path):
    """A phone appends data of its own behind the end of a JPEG; a thumbnail before it ends, too."""
    jpeg = jpeg_of(EIGHT)
    for trailer in (b"\xff\xda", b"MotionPhoto" + bytes(40) + jpeg[:-2], b"\xff" * 300, b"\xff\xd8\xff\xe0" + bytes(9)):
        path = write(tmp_path, jpeg + trailer, "a.jpg")
        assert np.abs(decode_file(path).values.astype(int) - EIGHT).max() <= 8
    thumbnail = jpeg_of(EIGHT[:16, :16])
    segment = b"\xff\xe1" + (len(thumbnail) + 2).to_bytes(2, "big") + thumbnail
    cut = jpeg[:2] + segment + jpeg[2:-2]
    assert is_complete_jpeg(cut + b"\xff\xd9")
    assert not is_complete_jpeg(cut)


@pytest.mark.parametrize("option", [cv2.IMWRITE_JPEG_PROGRESSIVE, cv2.IMWRITE_JPEG_OPTIMIZE])
def test_progressive_and_restarted_jpegs_are_complete_at_their_end_alone(option):
    for more in ((), (cv2.IMWRITE_JPEG_RST_INTERVAL, 3)):
        jpeg = jpeg_of(stored_values(picture(300, 200), 8, False), option, 1, *more)
        assert is_complete_jpeg(jpeg)
        assert read_jpeg(jpeg).rows == 300
        for cut in (1, 2, 3, 50, len(jpeg) // 2, len(jpeg) - 200):
            assert not is_complete_jpeg(jpeg[:-cut]), cut


def test_damaged_codestreams_have_no_header():
    for data in (b"", b"\xff\xd8", b"\xff\xd8\xff", b"\xff\xd8\xff\xc0\0", b"\xff" * 1000, b"\xff\xd8" + bytes(999)):
        assert read_jpeg(data) is None
        assert not is_complete_jpeg(data)
        assert read_jpeg_2000(b"\xff\x4f\xff\x51" + data[:20]) is None
    header = b"\xff\x4f\xff\x51\0\x29\0\0" + struct.pack(">8I", 90, 70, 10, 20, 90, 70, 0, 0) + b"\0\x01\x8b\x01\x01"
    found = read_jpeg_2000(header)
    assert (found.rows, found.columns, found.components, found.precision, found.is_signed) == (50, 80, 1, 12, True)


def test_overlay_groups_with_data_of_their_own_are_no_bits_of_the_image(tmp_path):
    made = dataset(TWELVE, 10)
    for element, vr, value in ((0x10, "US", 96), (0x11, "US", 80), (0x100, "US", 1), (0x102, "US", 0)):
        made.add_new((0x6000, element), vr, value)
    made.add_new((0x6000, 0x3000), "OW", bytes(960))
    result = decoded(tmp_path, encoded(made))
    assert np.array_equal(result.values, TWELVE)
    assert isinstance(made, Dataset)
