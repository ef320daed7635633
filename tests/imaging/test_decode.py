"""Decoding: every encoding gives the same grey levels, every bad file its reason."""

import cv2
import numpy as np
import pytest
from pydicom import dcmread, uid
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate, generate_frames

from cxr.dicom.decode import decode_file
from cxr.dicom.files import Rejected
from cxr.dicom.image import DecodedImage
from cxr.imaging.frames.decoding import is_narrow, to_grey
from dicom_files import (
    LOSSLESS,
    SHARED_OR_NONE,
    dataset,
    encoded,
    expected_grey,
    nih_picture,
    picture,
    stored_values,
    write,
)

PERCENTILES = [0.5, 99.5]


def grey_of(path: str, method: str = "minmax", percentiles: list[float] = PERCENTILES) -> np.ndarray:
    return to_grey(decode_file(path), method, percentiles)


def reason_of(path: str) -> str:
    with pytest.raises(Rejected) as caught:
        grey_of(path)
    return caught.value.reason


# ----------------------------------------------------------------------------------------- encodings

BITS = [(8, False), (8, True), (10, False), (12, False), (12, True), (16, False), (16, True)]


@pytest.mark.parametrize("syntax", LOSSLESS, ids=lambda syntax: syntax.name)
@pytest.mark.parametrize(("bits", "signed"), BITS)
def test_lossless_encodings_come_back_exactly(tmp_path, syntax, bits, signed):
    for photometric in ("MONOCHROME2", "MONOCHROME1"):
        values = stored_values(nih_picture(SHARED_OR_NONE, bits), bits, signed)
        made = dataset(values, bits, PhotometricInterpretation=photometric)
        grey = grey_of(write(tmp_path, encoded(made, syntax)))
        expected = expected_grey(values)
        assert np.array_equal(grey, expected if photometric == "MONOCHROME2" else 255 - expected)


def test_jpeg_baseline_is_close(tmp_path):
    values = stored_values(nih_picture(SHARED_OR_NONE), 8, False)
    grey = grey_of(write(tmp_path, encoded(dataset(values), uid.JPEGBaseline8Bit)))
    assert np.abs(grey.astype(int) - expected_grey(values)).mean() < 2


def test_twelve_bit_jpeg_of_which_some_decoders_refuse_one():
    # One picture twice; the first has scan parameters that only GDCM reads.
    first, second = (decode_file(get_testdata_file(name)).values for name in ("JPEG-lossy.dcm", "JPGExtended.dcm"))
    assert first.shape == second.shape == (1024, 256)
    assert first.max() > 255
    assert np.abs(first.astype(int) - second).max() <= 1


@pytest.mark.parametrize("name", ["no meta", "no preamble", "big endian without meta"])
def test_files_without_preamble_or_meta(tmp_path, name):
    values = stored_values(picture(), 12, False)
    made = dataset(values, 12)
    path = tmp_path / "a.dcm"
    little = name != "big endian without meta"
    if not little:
        made.PixelData = values.astype(">u2").tobytes()
    made.save_as(path, implicit_vr=name == "no meta", little_endian=little)
    assert path.read_bytes()[128:132] != b"DICM"
    assert np.array_equal(grey_of(str(path)), expected_grey(values))


WHOLE = [
    "SC_rgb_jpeg_gdcm",
    "SC_rgb_rle_16bit",
    "SC_rgb_small_odd",
    "SC_ybr_full_422_uncompressed",
    "SC_rgb_jls_lossy_line",
    "JPEG2000",
    "JPEGLSNearLossless_16",
    "MR_small_RLE",
    "J2K_pixelrep_mismatch",
    "ExplVR_BigEnd",
    "image_dfl",
    "examples_palette",
    "MR_small_padded",
    "examples_overlay",
    "693_J2KI",
]
OTHERS = {
    "MR_truncated": "undecodable",
    "SC_rgb_rle_2frame": "multi_frame",
    "rtdose": "multi_frame",
    "test-SR": "no_pixels",
    "rtplan": "no_pixels",
    "rtplan_truncated": "no_pixels",
    "no_meta": "not_dicom",  # its first byte is wrong
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_files_of_other_makers(name):
    path = get_testdata_file(f"{name}.dcm")
    header = dcmread(path, force=True, stop_before_pixels=True)
    grey = grey_of(path)
    assert grey.shape == (header.Rows, header.Columns)
    assert (grey.min(), grey.max()) == (0, 255)


@pytest.mark.parametrize("name", OTHERS)
def test_unusable_files_of_other_makers(name):
    assert reason_of(get_testdata_file(f"{name}.dcm")) == OTHERS[name]


def test_colours_become_brightness(tmp_path):
    rgb = np.stack(
        [stored_values(picture(), 8, False), stored_values(picture()[::-1], 8, False), np.full((96, 80), 9, "u1")], -1
    )
    made = dataset(rgb, SamplesPerPixel=3, PhotometricInterpretation="RGB", PlanarConfiguration=0)
    weighed = rgb @ np.array([0.299, 0.587, 0.114])
    grey = grey_of(write(tmp_path, encoded(made)))
    assert np.abs(grey.astype(int) - expected_grey(np.rint(weighed))).max() <= 2


def test_unused_high_bits_are_left_out(tmp_path):
    values = stored_values(picture(), 12, False)
    overlay = values | np.where(picture() > 0.7, 0x8000, 0).astype(np.uint16)
    grey = grey_of(write(tmp_path, encoded(dataset(overlay, 12))))
    assert np.array_equal(grey, expected_grey(values))


def test_values_in_the_upper_bits(tmp_path):
    values = stored_values(picture(), 12, False)
    made = dataset(values << 4, 12, HighBit=15)
    assert np.array_equal(grey_of(write(tmp_path, encoded(made))), expected_grey(values))


# -------------------------------------------------------------------------------------- grey mapping


def test_rescale_with_a_negative_slope_turns_the_picture_over(tmp_path):
    values = stored_values(picture(), 12, False)
    made = dataset(values, 12, RescaleSlope="-2", RescaleIntercept="4095")
    assert np.array_equal(grey_of(write(tmp_path, encoded(made))), expected_grey(-values.astype(float)))


def test_modality_table(tmp_path):
    values = stored_values(picture(), 8, False)
    curve = np.rint(np.sqrt(np.arange(256) / 255) * 65535).astype(np.uint16)
    item = Dataset()
    item.LUTDescriptor, item.LUTData, item.ModalityLUTType = [256, 0, 16], curve.tobytes(), "US"
    grey = grey_of(write(tmp_path, encoded(dataset(values, ModalityLUTSequence=[item]))))
    assert np.array_equal(grey, expected_grey(curve[values]))


@pytest.mark.parametrize("photometric", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(("padding", "limit"), [(0, None), (4095, None), (3, 0), (4090, 4095)])
def test_padding_is_left_out_of_the_range_and_black(tmp_path, photometric, padding, limit):
    body = np.rint(500 + picture() * 2000).astype(np.uint16)
    values = body.copy()
    values[:10] = padding
    values[-1] = padding if limit is None else limit
    made = dataset(values, 12, PhotometricInterpretation=photometric, PixelPaddingValue=padding)
    if limit is not None:
        made.PixelPaddingRangeLimit = limit
    grey = grey_of(write(tmp_path, encoded(made)))
    expected = expected_grey(body[10:-1])
    assert np.array_equal(grey[10:-1], expected if photometric == "MONOCHROME2" else 255 - expected)
    assert not grey[:10].any()
    assert not grey[-1].any()


def test_padding_of_signed_data_written_as_unsigned(tmp_path):
    values = np.rint(picture() * 1000).astype(np.int16)
    values[:5] = -2000
    made = dataset(values, 16, PixelPaddingValue=-2000)
    data = encoded(made).replace((-2000).to_bytes(2, "little", signed=True), (65536 - 2000).to_bytes(2, "little"))
    grey = grey_of(write(tmp_path, data))
    assert np.array_equal(grey[5:], expected_grey(values[5:]))


@pytest.mark.parametrize("function", [None, "LINEAR", "LINEAR_EXACT", "SIGMOID"])
def test_voi_window_by_the_standard(tmp_path, function):
    values = stored_values(picture(), 12, False)
    center, width = 1500.0, 1000.0
    made = dataset(values, 12, WindowCenter=center, WindowWidth=width)
    if function:
        made.VOILUTFunction = function
    x = values.astype(float)
    share = {
        "LINEAR": (x - (center - 0.5)) / (width - 1) + 0.5,
        "LINEAR_EXACT": (x - center) / width + 0.5,
        "SIGMOID": 1 / (1 + np.exp(-4 * (x - center) / width)),
    }[function or "LINEAR"]
    grey = grey_of(write(tmp_path, encoded(made)), "voi")
    assert np.abs(grey.astype(int) - np.rint(np.clip(share, 0, 1) * 255)).max() <= 1
    assert np.array_equal(grey_of(write(tmp_path, encoded(dataset(values, 12))), "voi"), expected_grey(values))


def test_voi_table(tmp_path):
    values = stored_values(picture(), 8, False)
    curve = np.rint((np.arange(256) / 255) ** 2 * 4095).astype(np.uint16)
    item = Dataset()
    item.LUTDescriptor, item.LUTData = [256, 0, 12], curve.tobytes()
    made = dataset(values, VOILUTSequence=[item])
    grey = grey_of(write(tmp_path, encoded(made)), "voi")
    assert np.abs(grey.astype(int) - np.rint(curve[values] / 4095 * 255)).max() <= 1


def test_percentiles():
    values = stored_values(picture(200, 200), 12, False)
    spiked = values.copy()
    spiked[0, :20] = 60000
    low, high = np.percentile(spiked, PERCENTILES, method="nearest")
    assert high < 4096
    grey = to_grey(DecodedImage(spiked), "percentile", PERCENTILES)
    assert np.array_equal(grey, expected_grey(spiked, low, high))


def test_narrow_range_is_told_at_the_limit():
    grey = np.tile(np.arange(101, dtype=np.uint8), (100, 1))  # 10100 pixels in 0..100
    assert not is_narrow(np.tile(np.arange(256, dtype=np.uint8), (40, 1)))
    for outliers, narrow in ((10, True), (11, False)):  # 0.1 % of 10100 is 10.1
        spiked = grey.copy().ravel()
        spiked[::101][:outliers] = 255
        assert is_narrow(spiked.reshape(grey.shape)) is narrow


# -------------------------------------------------------------------------------------- PNG and JPEG


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_png_of_any_depth(tmp_path, kind):
    values = np.rint(picture() * np.iinfo(kind).max).astype(kind)
    path = str(tmp_path / "a.png")
    cv2.imwrite(path, values)
    assert np.array_equal(grey_of(path), expected_grey(values))
    cv2.imwrite(path, np.dstack([values] * 3))
    assert np.array_equal(grey_of(path), expected_grey(values))
    alpha = np.full_like(values, np.iinfo(kind).max)
    alpha[:20] = 0
    cv2.imwrite(path, np.dstack([values, values, values, alpha]))
    grey = grey_of(path)
    assert not grey[:20].any()
    assert np.array_equal(grey[20:], expected_grey(values[20:]))


def test_jpeg_file(tmp_path):
    values = stored_values(picture(), 8, False)
    path = str(tmp_path / "a.jpg")
    cv2.imwrite(path, values, [cv2.IMWRITE_JPEG_QUALITY, 100])
    assert np.abs(grey_of(path).astype(int) - expected_grey(values)).max() <= 3


@pytest.mark.parametrize("ending", [".png", ".jpg"])
def test_cut_pictures_are_refused_at_any_length(tmp_path, ending):
    data = cv2.imencode(ending, stored_values(picture(), 8, False))[1].tobytes()
    for length in {*range(132, len(data), 97), len(data) - 1}:
        assert reason_of(write(tmp_path, data[:length], f"a{ending}")) == "undecodable", length


# ----------------------------------------------------------------------------------------- bad files


@pytest.mark.parametrize("syntax", [*LOSSLESS, uid.JPEGBaseline8Bit], ids=lambda syntax: syntax.name)
def test_truncated_pixels_are_refused_not_padded(tmp_path, syntax):
    bits = 8 if syntax == uid.JPEGBaseline8Bit else 12
    data = encoded(dataset(stored_values(picture(), bits, False), bits), syntax)
    grey_of(write(tmp_path, data))
    for share in (0.4, 0.6, 0.8, 0.95):
        assert reason_of(write(tmp_path, data[: int(len(data) * share)])) == "undecodable", share
    # An encapsulated file ends in eight bytes of delimiter.
    assert reason_of(write(tmp_path, data[:-12])) == "undecodable"


@pytest.mark.parametrize("syntax", LOSSLESS[4:], ids=lambda syntax: syntax.name)
def test_a_cut_codestream_in_a_whole_file_is_refused(tmp_path, syntax):
    path = write(tmp_path, encoded(dataset(stored_values(picture(), 12, False), 12), syntax))
    made = dcmread(path)
    frame = next(generate_frames(made.PixelData, number_of_frames=1)).rstrip(b"\0")
    for share in (0.3, 0.7, 0.9):
        made.PixelData = encapsulate([frame[: int(len(frame) * share)]])
        made.save_as(path)
        assert reason_of(path) == "undecodable", share


def test_each_reason(tmp_path):
    values = stored_values(picture(), 12, False)
    two = np.stack([values, values])
    assert reason_of(str(tmp_path / "none.dcm")) == "missing_file"
    assert reason_of(str(tmp_path)) == "missing_file"
    assert reason_of(write(tmp_path, b"")) == "empty_file"
    assert reason_of(write(tmp_path, b"GIF89a" + bytes(300))) == "not_dicom"
    assert reason_of(write(tmp_path, encoded(dataset(values, 12, PixelData=None)))) == "no_pixels"
    assert reason_of(write(tmp_path, encoded(dataset(values, 12, PixelData=b"")))) == "no_pixels"
    many = dataset(two[0], 12, NumberOfFrames=2, PixelData=two.tobytes())
    assert reason_of(write(tmp_path, encoded(many))) == "multi_frame"
    assert reason_of(write(tmp_path, encoded(dataset(np.full((64, 64), 7, np.uint16), 12)))) == "constant_image"
    huge = dataset(values, 12, Rows=60000, Columns=60000)
    assert reason_of(write(tmp_path, encoded(huge))) == "undecodable"
    for missing in (0x0004, 0x0010, 0x0100, 0x0103):  # photometric interpretation, rows, bits, signedness
        tag = b"\x28\x00" + missing.to_bytes(2, "little")
        data = encoded(dataset(values, 12)).replace(tag, b"\x29\x00" + tag[2:], 1)
        assert reason_of(write(tmp_path, data)) == "undecodable", hex(missing)
    assert reason_of(write(tmp_path, encoded(dataset(values, 12, Rows=97)))) == "undecodable"
    one = dataset(values, 12, NumberOfFrames=1)
    assert grey_of(write(tmp_path, encoded(one))).shape == (96, 80)


def test_unknown_transfer_syntax(tmp_path):
    data = encoded(dataset(stored_values(picture(), 12, False), 12))
    path = write(tmp_path, data.replace(b"1.2.840.10008.1.2.1\0", b"1.2.840.10008.1.2.9\0"))
    assert reason_of(path) == "undecodable"
