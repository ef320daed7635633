"""Modality and VOI lookup tables of every width and packing, against the curve that they were made of."""

import numpy as np
import pytest
from pydicom import uid
from pydicom.dataset import Dataset

from cxr.dicom.decode import decode_file
from cxr.dicom.image import DecodedImage
from cxr.imaging.frames.decoding import to_grey
from dicom_files import dataset, encoded, expected_grey, picture, stored_values, write

PLAIN, BIG, IMPLICIT = uid.ExplicitVRLittleEndian, uid.ExplicitVRBigEndian, uid.ImplicitVRLittleEndian
VALUES = stored_values(picture(), 8, False)
WIDTHS = (8, 9, 10, 11, 12, 13, 14, 15, 16)


def curve(bits: int, entries: int = 256) -> np.ndarray:
    """Return a falling, uneven curve over all values of ``bits`` bits."""
    return np.rint((1 - np.arange(entries) / (entries - 1)) ** 1.7 * (2**bits - 1)).astype(np.uint16)


def item_of(descriptor: list[int], data: bytes | list[int], vr: str = "OW", first_vr: str = "US") -> Dataset:
    """Return an item of a LUT Sequence; ``vr``: that of its data, ``first_vr`` of its descriptor."""
    item = Dataset()
    item.add_new(0x00283002, first_vr, descriptor)
    item.add_new(0x00283006, vr, data)
    item.ModalityLUTType = "US"
    return item


def picture_of(folder, values: np.ndarray, name: str, item: Dataset, syntax: uid.UID = PLAIN, **tags) -> DecodedImage:
    made = dataset(values, **{f"{name}LUTSequence": [item]}, **tags)
    return decode_file(write(folder, encoded(made, syntax)))


def grey_by_voi(result: DecodedImage) -> np.ndarray:
    return to_grey(result, "voi", [0.5, 99.5])


def right_grey(expected: np.ndarray, largest: int) -> np.ndarray:
    return np.rint(expected.astype(float) / largest * 255).astype(np.uint8)


@pytest.mark.parametrize("bits", WIDTHS)
@pytest.mark.parametrize("said", [None, 16])
def test_words_of_any_width(tmp_path, bits, said):
    item = item_of([256, 0, said or bits], curve(bits).tobytes())
    modality = picture_of(tmp_path, VALUES, "Modality", item)
    assert np.array_equal(modality.values, curve(bits)[VALUES])
    assert modality.notes == []
    voi = picture_of(tmp_path, VALUES, "VOI", item)
    assert np.abs(grey_by_voi(voi).astype(int) - right_grey(curve(bits)[VALUES], 2**bits - 1)).max() <= 1
    assert voi.notes == []


@pytest.mark.parametrize("name", ["Modality", "VOI"])
@pytest.mark.parametrize(
    ("syntax", "vr", "data"),
    [
        (PLAIN, "OW", curve(8).astype(np.uint8).tobytes()),  # packed: two entries a word, the first one low
        (PLAIN, "OB", curve(8).astype(np.uint8).tobytes()),
        (PLAIN, "UN", curve(8).astype(np.uint8).tobytes()),
        (PLAIN, "US", curve(8).astype(np.uint8).view("<u2").tolist()),
        (BIG, "OW", curve(8).astype(np.uint8).view("<u2").byteswap().tobytes()),
        (IMPLICIT, "OW", curve(8).astype(np.uint8).tobytes()),
        (PLAIN, "OW", curve(8).tobytes()),  # a word for each entry
        (PLAIN, "US", curve(8).tolist()),
        (BIG, "OW", curve(8).byteswap().tobytes()),
        (IMPLICIT, "US", curve(8).tolist()),
    ],
)
def test_entries_of_8_bits_in_any_packing(tmp_path, name, syntax, vr, data):
    result = picture_of(tmp_path, VALUES, name, item_of([256, 0, 8], data, vr), syntax)
    assert result.notes == []
    if name == "Modality":
        assert np.array_equal(result.values, curve(8)[VALUES])
    else:
        assert np.abs(grey_by_voi(result).astype(int) - curve(8)[VALUES]).max() <= 1


def test_an_odd_number_of_packed_entries(tmp_path):
    entries = curve(8, 201).astype(np.uint8)
    result = picture_of(tmp_path, VALUES, "Modality", item_of([201, 0, 8], entries.tobytes() + b"\0"))
    assert np.array_equal(result.values, entries[np.minimum(VALUES, 200)])


@pytest.mark.parametrize("vr", ["US", "SS"])
def test_a_signed_first_value(tmp_path, vr):
    """Descriptors of signed pixels are written with either representation: 63488 is -2048."""
    values = stored_values(picture(), 12, True)
    entries = curve(12, 4096)
    descriptor = [4096, -2048 if vr == "SS" else 63488, 12]
    result = picture_of(tmp_path, values, "Modality", item_of(descriptor, entries.tobytes(), first_vr=vr))
    assert np.array_equal(result.values, entries[values.astype(int) + 2048])


@pytest.mark.parametrize("first", [0, 10, 100])
def test_values_beyond_the_ends_get_the_last_entries(tmp_path, first):
    entries = curve(12, 64)
    result = picture_of(tmp_path, VALUES, "Modality", item_of([64, first, 12], entries.tobytes()))
    assert np.array_equal(result.values, entries[np.clip(VALUES.astype(int) - first, 0, 63)])


def test_0_entries_are_65536(tmp_path):
    values = stored_values(picture(), 16, False)
    result = picture_of(tmp_path, values, "Modality", item_of([0, 0, 16], curve(16, 65536).tobytes()))
    assert np.array_equal(result.values, curve(16, 65536)[values])


def test_a_table_of_more_entries_than_it_says(tmp_path):
    result = picture_of(tmp_path, VALUES, "Modality", item_of([100, 0, 12], curve(12).tobytes()))
    assert np.array_equal(result.values, curve(12)[:100][np.minimum(VALUES, 99)])
    assert result.notes == [
        "Modality lookup table: its descriptor says 100 entries, its data hold 256: the first 100 are used"
    ]


UNUSABLE = {
    "too short": (item_of([4096, 0, 12], curve(12).tobytes()), "its descriptor says 4096 entries, its data hold 256"),
    "empty": (item_of([256, 0, 12], b""), "its descriptor or its data are missing"),
    "flat": (item_of([256, 0, 12], np.full(256, 7, np.uint16).tobytes()), "all its entries are equal"),
    "no descriptor": (Dataset(), "its descriptor or its data are missing"),
}


@pytest.mark.parametrize("name", ["Modality", "VOI"])
@pytest.mark.parametrize("fault", UNUSABLE)
def test_an_unusable_table_is_ignored_and_noted(tmp_path, name, fault):
    item, why = UNUSABLE[fault]
    result = picture_of(tmp_path, VALUES, name, item)
    assert np.array_equal(result.values, VALUES)
    assert np.array_equal(grey_by_voi(result), expected_grey(VALUES))
    assert result.notes == [f"its {name} lookup table is ignored: {why}"]


@pytest.mark.parametrize("bits", [0, 1, 7, 17, 255])
def test_a_width_that_is_none_is_not_used(tmp_path, bits):
    item = item_of([256, 0, bits], curve(12).tobytes())
    assert np.array_equal(picture_of(tmp_path, VALUES, "Modality", item).values, curve(12)[VALUES])
    grey = grey_by_voi(picture_of(tmp_path, VALUES, "VOI", item))
    assert np.abs(grey.astype(int) - right_grey(curve(12)[VALUES], 4095)).max() <= 1


def test_a_table_keeps_its_dark_end(tmp_path):
    """A table that uses all its bits is scaled by them, not by its own largest entry."""
    item = item_of([256, 0, 12], (curve(12) // 2 + 100).tobytes())
    grey = grey_by_voi(picture_of(tmp_path, VALUES, "VOI", item))
    assert np.abs(grey.astype(int) - right_grey((curve(12) // 2 + 100)[VALUES], 4095)).max() <= 1


def test_a_voi_table_after_a_modality_table(tmp_path):
    made = dataset(VALUES, ModalityLUTSequence=[item_of([256, 0, 12], curve(12).tobytes())])
    made.VOILUTSequence = [item_of([4096, 0, 10], curve(10, 4096).tobytes())]
    grey = grey_by_voi(decode_file(write(tmp_path, encoded(made))))
    assert np.abs(grey.astype(int) - right_grey(curve(10, 4096)[curve(12)[VALUES]], 1023)).max() <= 1
