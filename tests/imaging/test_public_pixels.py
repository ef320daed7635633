"""Image files as devices, archives and phones write them: read rightly, or excluded with a reason that says why."""

import io
import json
import os
import re
import socket

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps
from pydicom import dcmread, uid
from pydicom.dataset import Dataset
from pydicom.encaps import encapsulate

import predict
from conftest import ROOT
from dicom_files import dataset, encoded, expected_grey, picture, stored_values
from input_doors import Outcome, frame_and_right_one, frames_of, png_of, run_python

ROWS, COLUMNS = 160, 128
UPRIGHT = picture(ROWS, COLUMNS)
GREY = expected_grey(stored_values(UPRIGHT, 8, False))


def with_table(file: Dataset, sequence: str, descriptor: list[int], data: bytes, signed: bool = False) -> Dataset:
    """Return a file with a modality or VOI lookup table whose entries are the bytes of ``data``."""
    item = Dataset()
    item.add_new("LUTDescriptor", "SS" if signed else "US", descriptor)
    item.add_new("LUTData", "OW", data)
    setattr(file, sequence, [item])
    return file


def words(entries: np.ndarray) -> bytes:
    return np.rint(entries).astype("<u2").tobytes()


def resaved(data: bytes, **tags: object) -> bytes:
    """Return a file with other tags over the same pixel data; a tag of None is removed."""
    file = dcmread(io.BytesIO(data))
    for name, value in tags.items():
        if value is None:
            delattr(file, name)
        else:
            setattr(file, name, value)
    stream = io.BytesIO()
    file.save_as(stream)
    return stream.getvalue()


def with_frame(file: Dataset, syntax: uid.UID, frame: bytes) -> bytes:
    """Return a file whose encapsulated pixel data are one given codestream."""
    file.PixelData = encapsulate([frame])
    file["PixelData"].VR = "OB"
    file.file_meta = Dataset() if not hasattr(file, "file_meta") else file.file_meta
    return _saved(file, syntax)


def _saved(file: Dataset, syntax: uid.UID) -> bytes:
    from pydicom.dataset import FileMetaDataset

    file.file_meta = FileMetaDataset()
    file.file_meta.TransferSyntaxUID = syntax
    stream = io.BytesIO()
    file.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def jpeg_of(pixels: np.ndarray, quality: int = 95) -> bytes:
    return cv2.imencode(".jpg", pixels, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()


def is_right_or_names(outcome: Outcome, right: Outcome, *marks: str, most: float = 1) -> bool:
    """Whether a frame is right, or the image is undecodable and the detail holds each of the marks."""
    if outcome.reason:
        return outcome.reason == "undecodable" and all(
            re.search(rf"(?<!\w){mark}", outcome.detail, re.IGNORECASE) for mark in marks
        )
    return outcome.mean_difference(right) <= most


# --------------------------------------------------------------------------------------- modality tables


def test_a_modality_table_of_14_bits_with_a_negative_first_value(tmp_path):
    values = stored_values(UPRIGHT, 12, True)
    entries = np.rint(16383 * np.linspace(0, 1, 4096) ** 0.5)
    file = with_table(dataset(values, 12), "ModalityLUTSequence", [4096, -2048, 14], words(entries), signed=True)
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(entries[values.astype(int) + 2048]))
    assert outcome.largest_difference(right) <= 1


def test_a_modality_table_of_10_bits_that_inverts(tmp_path):
    values = stored_values(UPRIGHT, 10, False)
    file = with_table(dataset(values, 10), "ModalityLUTSequence", [1024, 0, 10], words(np.arange(1023, -1, -1)))
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(1023 - values))
    assert outcome.largest_difference(right) <= 1


def test_a_modality_table_of_8_bit_entries_two_in_a_word(tmp_path):
    values = stored_values(UPRIGHT, 8, False)
    entries = np.rint(255 * np.linspace(0, 1, 256) ** 2).astype(np.uint8)
    file = with_table(dataset(values), "ModalityLUTSequence", [256, 0, 8], entries.tobytes())
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(entries[values]))
    assert outcome.largest_difference(right) <= 1


def test_a_modality_table_of_8_bit_entries_each_in_a_word(tmp_path):
    values = stored_values(UPRIGHT, 8, False)
    entries = np.rint(255 * np.linspace(0, 1, 256) ** 0.4)
    file = with_table(dataset(values), "ModalityLUTSequence", [256, 0, 8], words(entries))
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(entries[values]))
    assert outcome.largest_difference(right) <= 1


def test_a_modality_table_of_65536_entries(tmp_path):
    values = stored_values(UPRIGHT, 16, False)
    entries = np.rint(65535 * np.linspace(0, 1, 65536) ** 3)
    file = with_table(dataset(values, 16), "ModalityLUTSequence", [0, 0, 16], words(entries))
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(entries[values]))
    assert outcome.largest_difference(right) <= 1


def test_a_modality_table_that_begins_above_zero(tmp_path):
    values = stored_values(UPRIGHT, 12, False)
    entries = np.arange(3000) * 5.0  # 14 bits and less
    file = with_table(dataset(values, 12), "ModalityLUTSequence", [3000, 500, 14], words(entries))
    mapped = entries[np.clip(values.astype(int) - 500, 0, 2999)]
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(mapped))
    assert outcome.largest_difference(right) <= 1


# -------------------------------------------------------------------------------------------- VOI tables


def test_a_voi_table_of_8_bit_entries_two_in_a_word(tmp_path):
    values = stored_values(UPRIGHT, 8, False)
    entries = np.rint(255 * np.linspace(0, 1, 256) ** 1.8).astype(np.uint8)
    file = with_table(dataset(values), "VOILUTSequence", [256, 0, 8], entries.tobytes())
    outcome, right = frame_and_right_one(tmp_path, encoded(file), entries[values], window="voi")
    assert outcome.largest_difference(right) <= 1


def test_a_voi_table_of_8_bit_entries_each_in_a_word(tmp_path):
    values = stored_values(UPRIGHT, 10, False)
    entries = np.rint(255 * np.linspace(0, 1, 1024) ** 0.6)
    file = with_table(dataset(values, 10), "VOILUTSequence", [1024, 0, 8], words(entries))
    outcome, right = frame_and_right_one(tmp_path, encoded(file), entries[values].astype(np.uint8), window="voi")
    assert outcome.largest_difference(right) <= 1


def test_a_voi_table_of_10_bits_said_to_have_16(tmp_path):
    values = stored_values(UPRIGHT, 12, False)
    entries = np.rint(1023 * np.linspace(0, 1, 4096) ** 1.5)
    file = with_table(dataset(values, 12), "VOILUTSequence", [4096, 0, 16], words(entries))
    right_grey = np.rint(entries[values] / 1023 * 255).astype(np.uint8)
    outcome, right = frame_and_right_one(tmp_path, encoded(file), right_grey, window="voi")
    assert outcome.largest_difference(right) <= 1


def test_a_voi_table_without_entries_is_as_if_there_were_none(tmp_path):
    values = stored_values(UPRIGHT, 12, False)
    file = with_table(dataset(values, 12), "VOILUTSequence", [4096, 0, 12], b"")
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(values), window="voi")
    assert outcome.largest_difference(right) <= 1


def test_a_voi_table_with_a_descriptor_of_two_values_is_as_if_there_were_none(tmp_path):
    values = stored_values(UPRIGHT, 12, False)
    file = with_table(dataset(values, 12), "VOILUTSequence", [4096, 0], words(np.arange(4096)))
    outcome, right = frame_and_right_one(tmp_path, encoded(file), expected_grey(values), window="voi")
    assert outcome.largest_difference(right) <= 1


def test_a_voi_table_for_a_part_of_the_values_goes_on_with_its_ends(tmp_path):
    values = stored_values(UPRIGHT, 12, False)
    entries = np.rint(np.linspace(0, 4095, 2000))
    file = with_table(dataset(values, 12), "VOILUTSequence", [2000, 1000, 12], words(entries))
    mapped = entries[np.clip(values.astype(int) - 1000, 0, 1999)]
    right_grey = np.rint(mapped / 4095 * 255).astype(np.uint8)
    outcome, right = frame_and_right_one(tmp_path, encoded(file), right_grey, window="voi")
    assert outcome.largest_difference(right) <= 1


def test_a_voi_table_after_a_rescale_below_zero(tmp_path):
    values = stored_values(UPRIGHT, 12, False)
    entries = np.rint(4095 * np.linspace(0, 1, 4096) ** 0.7)
    file = dataset(values, 12, RescaleSlope=1, RescaleIntercept=-1024)
    file = with_table(file, "VOILUTSequence", [4096, -1024, 12], words(entries), signed=True)
    right_grey = np.rint(entries[values] / 4095 * 255).astype(np.uint8)
    outcome, right = frame_and_right_one(tmp_path, encoded(file), right_grey, window="voi")
    assert outcome.largest_difference(right) <= 1


# --------------------------------------------------------------------------- header unlike the codestream


def test_a_jpeg_2000_codestream_of_another_size_than_the_header(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 12, False), 12), uid.JPEG2000Lossless)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, Rows=100, Columns=90), GREY)
    assert is_right_or_names(outcome, right, "160", "128", "100", "90")


def test_a_jpeg_ls_codestream_with_rows_and_columns_exchanged_in_the_header(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 12, False), 12), uid.JPEGLSLossless)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, Rows=COLUMNS, Columns=ROWS), GREY)
    assert is_right_or_names(outcome, right, "160", "128")


def test_a_jpeg_lossless_codestream_with_rows_and_columns_exchanged_in_the_header(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 12, False), 12), uid.JPEGLosslessSV1)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, Rows=COLUMNS, Columns=ROWS), GREY)
    assert is_right_or_names(outcome, right, "160", "128")


def test_a_jpeg_lossless_codestream_of_12_bits_under_a_header_of_9(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 12, False), 12), uid.JPEGLosslessSV1)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, BitsStored=9, HighBit=8), GREY)
    assert is_right_or_names(outcome, right, "12", "9")


def test_a_jpeg_lossless_codestream_of_14_bits_under_a_header_of_12(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 14, False), 14), uid.JPEGLossless)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, BitsStored=12, HighBit=11), GREY)
    assert is_right_or_names(outcome, right, "14", "12")


def test_a_jpeg_lossless_codestream_of_8_bits_under_a_header_of_16(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 8, False)), uid.JPEGLosslessSV1)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, BitsAllocated=16, BitsStored=8, HighBit=7), GREY)
    assert outcome.largest_difference(right) <= 1


def test_a_jpeg_ls_codestream_of_8_bits_under_a_header_of_16(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 8, False)), uid.JPEGLSLossless)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, BitsAllocated=16, BitsStored=8, HighBit=7), GREY)
    assert outcome.largest_difference(right) <= 1


def test_a_jpeg_of_three_equal_components_under_a_grey_header(tmp_path):
    colour = jpeg_of(np.repeat(GREY[..., None], 3, axis=2))
    outcome, right = frame_and_right_one(tmp_path, with_frame(dataset(GREY), uid.JPEGBaseline8Bit, colour), GREY)
    assert is_right_or_names(outcome, right, "component", most=3)


def test_a_grey_jpeg_under_a_header_of_three_samples(tmp_path):
    file = dataset(GREY, SamplesPerPixel=3, PhotometricInterpretation="YBR_FULL_422", PlanarConfiguration=0)
    outcome, right = frame_and_right_one(tmp_path, with_frame(file, uid.JPEGBaseline8Bit, jpeg_of(GREY)), GREY)
    assert outcome.reason == "undecodable" or outcome.mean_difference(right) < 3


def test_a_jpeg_2000_codestream_of_16_bits_under_a_header_of_10(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 16, False), 16), uid.JPEG2000Lossless)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, BitsStored=10, HighBit=9), GREY)
    assert is_right_or_names(outcome, right, "16", "10")


def test_a_run_length_file_of_one_byte_a_pixel_under_a_header_of_two(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 8, False)), uid.RLELossless)
    outcome, right = frame_and_right_one(tmp_path, resaved(data, BitsAllocated=16, BitsStored=8, HighBit=7), GREY)
    assert outcome.reason == "undecodable" or outcome.largest_difference(right) <= 1


def test_fewer_native_pixels_than_the_header_says_are_truncated(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 12, False), 12, Rows=ROWS + 40))
    outcome, _ = frame_and_right_one(tmp_path, data, GREY)
    assert outcome.reason == "undecodable"
    assert outcome.detail


# ------------------------------------------------------------------------------------- bits and polarity


def test_values_of_14_bits_under_a_header_of_12(tmp_path):
    file = dataset(stored_values(UPRIGHT, 14, False), 12)
    outcome, right = frame_and_right_one(tmp_path, encoded(file), GREY)
    assert is_right_or_names(outcome, right, "BitsStored")


def test_signed_values_of_13_bits_under_a_header_of_11(tmp_path):
    file = dataset(stored_values(UPRIGHT, 13, True), 11)
    outcome, right = frame_and_right_one(tmp_path, encoded(file), GREY)
    assert is_right_or_names(outcome, right, "BitsStored")


def test_an_overlay_in_unused_bits_is_no_part_of_the_image(tmp_path):
    values = stored_values(UPRIGHT, 12, False)
    drawn = values.copy()
    drawn[20:60, 20:60] |= 1 << 13
    file = dataset(drawn, 12)
    for element, kind, value in (
        (0x0010, "US", ROWS), (0x0011, "US", COLUMNS), (0x0040, "CS", "G"), (0x0050, "SS", [1, 1]),
        (0x0100, "US", 16), (0x0102, "US", 13),
    ):  # fmt: skip
        file.add_new((0x6000, element), kind, value)
    outcome, right = frame_and_right_one(tmp_path, encoded(file), GREY)
    assert outcome.largest_difference(right) <= 1


def test_an_inverse_presentation_turns_monochrome2_over(tmp_path):
    values = stored_values(1 - UPRIGHT, 12, False)
    file = dataset(values, 12, PresentationLUTShape="INVERSE")
    outcome, right = frame_and_right_one(tmp_path, encoded(file), 255 - expected_grey(values))
    assert outcome.largest_difference(right) <= 1


def test_an_inverse_presentation_turns_monochrome1_over_once(tmp_path):
    values = stored_values(1 - UPRIGHT, 12, False)
    file = dataset(values, 12, PresentationLUTShape="INVERSE", PhotometricInterpretation="MONOCHROME1")
    outcome, right = frame_and_right_one(tmp_path, encoded(file), 255 - expected_grey(values))
    assert outcome.largest_difference(right) <= 1


def test_an_identity_presentation_leaves_monochrome2(tmp_path):
    file = dataset(stored_values(UPRIGHT, 12, False), 12, PresentationLUTShape="IDENTITY")
    outcome, right = frame_and_right_one(tmp_path, encoded(file), GREY)
    assert outcome.largest_difference(right) <= 1


# --------------------------------------------------------------------------------------------- directions


def maps_back(outcome: Outcome, *originals: np.ndarray) -> bool:
    """Whether ``to_original`` leads from each grey level of the frame to the same one of one of the originals."""
    places = np.stack(np.meshgrid(np.arange(130, 380, 16), np.arange(130, 380, 16)), axis=-1).reshape(-1, 2) + 0.5
    matrix = np.asarray(outcome.to_original, float).reshape(2, 3)
    levels = outcome.frame[places[:, 1].astype(int), places[:, 0].astype(int)].astype(int)
    x, y = (places @ matrix[:, :2].T + matrix[:, 2]).T
    fitting = []
    for original in originals:
        rows, columns = original.shape
        inside = (x >= 0) & (x < columns) & (y >= 0) & (y < rows)
        if inside.all():
            fitting.append(np.abs(original[y.astype(int), x.astype(int)].astype(int) - levels).mean() < 8)
    return any(fitting)


def turned(folder, orientation: str, stored: np.ndarray) -> tuple[Outcome, Outcome, np.ndarray]:
    """Return the outcome of a file with a PatientOrientation, that of the upright image, and the stored grey."""
    values = stored_values(np.ascontiguousarray(stored), 12, False)
    file = dataset(values, 12, PatientOrientation=orientation.split("\\"))
    return (*frame_and_right_one(folder, encoded(file), GREY), expected_grey(values))


def test_rows_that_run_to_the_right_are_mirrored(tmp_path):
    outcome, right, stored = turned(tmp_path, "R\\F", UPRIGHT[:, ::-1])
    assert outcome.mean_difference(right) < 2
    assert maps_back(outcome, stored)


def test_columns_that_run_to_the_head_are_upside_down(tmp_path):
    outcome, right, stored = turned(tmp_path, "L\\H", UPRIGHT[::-1])
    assert outcome.mean_difference(right) < 2
    assert maps_back(outcome, stored)


def test_rows_to_the_right_and_columns_to_the_head_are_turned_by_180_degrees(tmp_path):
    outcome, right, stored = turned(tmp_path, "R\\H", UPRIGHT[::-1, ::-1])
    assert outcome.mean_difference(right) < 2
    assert maps_back(outcome, stored)


def test_rows_to_the_feet_and_columns_to_the_left_are_transposed(tmp_path):
    outcome, right, stored = turned(tmp_path, "F\\L", UPRIGHT.T)
    assert outcome.mean_difference(right) < 2
    assert maps_back(outcome, stored)


def test_rows_to_the_head_and_columns_to_the_left_are_turned_by_90_degrees(tmp_path):
    outcome, right, stored = turned(tmp_path, "H\\L", UPRIGHT.T[:, ::-1])
    assert outcome.mean_difference(right) < 2
    assert maps_back(outcome, stored)


def test_rows_to_the_feet_and_columns_to_the_right_are_turned_by_270_degrees(tmp_path):
    outcome, right, stored = turned(tmp_path, "F\\R", UPRIGHT.T[::-1])
    assert outcome.mean_difference(right) < 2
    assert maps_back(outcome, stored)


def test_an_upright_orientation_changes_nothing(tmp_path):
    outcome, right, stored = turned(tmp_path, "L\\F", UPRIGHT)
    assert outcome.mean_difference(right) < 2
    assert maps_back(outcome, stored)


def test_an_orientation_that_is_no_frontal_one_is_lateral(tmp_path):
    file = dataset(stored_values(UPRIGHT, 12, False), 12, PatientOrientation=["A", "F"], ViewPosition=None)
    outcome, _ = frame_and_right_one(tmp_path, encoded(file), GREY)
    assert outcome.reason == "not_frontal"


def photographed(folder, number: int, form: str = "JPEG") -> tuple[Outcome, Outcome, np.ndarray, np.ndarray]:
    """Return the outcome of a file with an EXIF orientation, that of the upright image, both original greys.

    The first original is as stored, the second as a viewer shows it.
    """
    back = {2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}[number]
    marked = Image.fromarray(GREY)
    marked.getexif()[0x0112] = back
    stored = ImageOps.exif_transpose(marked)
    notes = Image.Exif()
    notes[0x0112] = number
    stream = io.BytesIO()
    stored.save(stream, form, exif=notes, **({"quality": 95} if form == "JPEG" else {}))
    name = "tried.jpg" if form == "JPEG" else "tried.png"
    turned = ImageOps.exif_transpose(Image.open(io.BytesIO(stream.getvalue())))
    assert np.abs(np.asarray(turned).astype(int) - GREY).mean() < 3  # a viewer shows it upright
    outcomes = frames_of(folder, {name: stream.getvalue(), "right.png": png_of(GREY)})
    return outcomes[name], outcomes["right.png"], np.asarray(stored), np.asarray(turned)


@pytest.mark.parametrize(
    ("form", "orientation"),
    [("JPEG", 2), ("JPEG", 3), ("JPEG", 5), ("JPEG", 6), ("JPEG", 8), ("PNG", 6)],
    ids=["mirrored", "by 180 degrees", "transposed", "by 90 degrees", "by 270 degrees", "png by 90 degrees"],
)
def test_a_picture_that_exif_turns(tmp_path, form, orientation):
    outcome, right, stored, turned = photographed(tmp_path, orientation, form)
    assert outcome.mean_difference(right) < {"JPEG": 3, "PNG": 2}[form]
    assert maps_back(outcome, stored, turned)


# -------------------------------------------------------------------------------------------- body parts


def reasons_of_parts(folder, *parts: str) -> dict[str, str]:
    """Return {body part: reason, or "" where it is accepted}."""
    values = stored_values(UPRIGHT, 8, False)
    files = {f"{number}.dcm": encoded(dataset(values, BodyPartExamined=part)) for number, part in enumerate(parts)}
    outcomes = frames_of(folder, files)
    return {part: outcomes[f"{number}.dcm"].reason for number, part in enumerate(parts)}


def test_spellings_of_the_chest_in_other_languages(tmp_path):
    parts = ("torax", "Thorax", "PULMONES", "TORACE", "POITRINE")
    reasons = reasons_of_parts(tmp_path, *parts)
    assert [part for part in parts[:3] if reasons[part]] == []


def test_spellings_of_the_chest_with_a_view_or_a_place(tmp_path):
    parts = ("CHEST_PA", "CHEST AP", "CHEST-PORTABLE", "THORAX_AP", "PORTABLE CHEST")
    assert reasons_of_parts(tmp_path, *parts) == dict.fromkeys(parts, "")


def test_spellings_of_the_chest_with_the_abdomen(tmp_path):
    parts = ("CHEST_ABDOMEN", "CHEST ABDOMEN", "CHESTABDPELVIS")
    reasons = reasons_of_parts(tmp_path, *parts)
    assert [part for part in parts[:2] if reasons[part]] == []


def test_a_body_part_that_says_nothing_is_as_an_empty_one(tmp_path):
    parts = ("unknown", "UNKNOWN ", "")
    assert reasons_of_parts(tmp_path, *parts) == dict.fromkeys(parts, "")


def test_other_body_parts_stay_excluded(tmp_path):
    parts = ("ABDOMEN", "PELVIS", "SKULL", "CSPINE", "HIP")
    assert reasons_of_parts(tmp_path, *parts) == dict.fromkeys(parts, "wrong_body_part")


# ---------------------------------------------------------------------------------- files that are no files

READ_COHORT = """
import sys
from cohort_runs import run_cohort
from pathlib import Path
folder = Path(sys.argv[1])
result = run_cohort(folder, manifest=str(folder / "manifest.csv"), shards=1)
for image, reason in sorted(result.reasons.items()):
    print(image, reason)
print("accepted", *sorted(result.accepted["image_id"]))
"""


def cohort_with(folder, name: str, view: str = "PA", report: str = "") -> str:
    """Run the cohort on a chest and on a file of a name, in another process that has 60 s; return what it says."""
    chest = encoded(dataset(stored_values(picture(200, 180), 8, False)))
    (folder / "good.dcm").write_bytes(chest)
    rows = [f"p1,s1,good,good.dcm,,PA,{report and 'Clear.'}", f"p2,s2,odd,{name},{report},{view},"]
    header = "subject_id,study_id,image_id,image_path,report_path,view,findings"
    (folder / "manifest.csv").write_text("\n".join([header, *rows]) + "\n")
    done = run_python(READ_COHORT, str(folder), timeout_s=60)
    assert done.returncode == 0, done.stderr[-1000:]
    return done.stdout


def test_a_pipe_as_an_image_is_a_row_with_a_reason(tmp_path):
    os.mkfifo(tmp_path / "odd.dcm")
    reasons = cohort_with(tmp_path, "odd.dcm", "")
    assert re.search(r"^odd (unreadable_file|missing_file|not_dicom)$", reasons, re.MULTILINE)
    assert "accepted good" in reasons


def test_a_link_to_a_pipe_as_an_image_is_a_row_with_a_reason(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "odd.png").symlink_to("pipe")
    reasons = cohort_with(tmp_path, "odd.png")
    assert re.search(r"^odd (unreadable_file|missing_file|not_dicom|not_selected)$", reasons, re.MULTILINE) or (
        "accepted good odd" in reasons  # a picture whose view the table tells is first opened by the next stage
    )


def test_a_socket_as_an_image_is_a_row_with_a_reason(tmp_path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "odd.dcm"))
        reasons = cohort_with(tmp_path, "odd.dcm", "")
    assert re.search(r"^odd (unreadable_file|missing_file|not_dicom)$", reasons, re.MULTILINE)
    assert "accepted good" in reasons


def test_a_device_as_an_image_is_a_row_with_a_reason(tmp_path):
    (tmp_path / "odd.dcm").symlink_to("/dev/zero")
    reasons = cohort_with(tmp_path, "odd.dcm", "")
    assert re.search(r"^odd (unreadable_file|missing_file|not_dicom)$", reasons, re.MULTILINE)
    assert "accepted good" in reasons


READ_FRAMES = """
import os, sys
from pathlib import Path
from input_doors import frames_of
folder = Path(sys.argv[1])
for name, outcome in frames_of(folder, {sys.argv[2]: None}).items():
    print(name, outcome.reason)
"""


def test_a_pipe_that_takes_an_images_place_does_not_stop_the_frames(tmp_path):
    os.mkfifo(tmp_path / "odd.png")
    done = run_python(READ_FRAMES, str(tmp_path), "odd.png", timeout_s=90)
    assert re.search(r"^odd\.png (unreadable_file|missing_file|not_dicom)$", done.stdout, re.MULTILINE), done.stderr


READ_ZEROS = """
import resource, sys
from cxr.imaging.cohort.header import read_header
from cxr.dicom.files import Rejected
resource.setrlimit(resource.RLIMIT_CPU, (int(sys.argv[2]), int(sys.argv[2])))
try:
    read_header(sys.argv[1])
except Rejected as rejected:
    print(rejected.reason)
"""


def test_a_dicom_of_zeros_is_given_up_without_reading_it_element_by_element(tmp_path):
    (tmp_path / "zeros.dcm").write_bytes(bytes(128) + b"DICM" + bytes(60_000_000))
    assert run_python(READ_ZEROS, str(tmp_path / "zeros.dcm"), "9", timeout_s=300).stdout.strip() in (
        "unreadable_header", "not_dicom",
    )  # fmt: skip


def test_a_preallocated_dicom_is_given_up_without_reading_it_all(tmp_path):
    path = tmp_path / "preallocated.dcm"
    intact = encoded(dataset(stored_values(UPRIGHT, 8, False)))
    path.write_bytes(intact[:300])  # the file's meta group alone
    os.truncate(path, 6_000_000_000)
    assert run_python(READ_ZEROS, str(path), "15", timeout_s=300).stdout.strip() in ("unreadable_header", "not_dicom")


# -------------------------------------------------------------------------------------- ends of codestreams


def test_a_phones_trailer_with_the_mark_of_a_scan_is_no_truncation(tmp_path):
    data = jpeg_of(GREY) + b"SEFH\x6b\x00\xff\xda\x00\x08more of the phone's own\x00\x00SEFT"
    outcomes = frames_of(tmp_path, {"tried.jpg": data, "right.png": png_of(GREY)})
    assert outcomes["tried.jpg"].mean_difference(outcomes["right.png"]) < 3


def test_a_second_picture_behind_a_jpeg_is_ignored_even_if_it_is_cut(tmp_path):
    data = jpeg_of(GREY) + jpeg_of(255 - GREY)[:2000]
    outcomes = frames_of(tmp_path, {"tried.jpg": data, "right.png": png_of(GREY)})
    assert outcomes["tried.jpg"].mean_difference(outcomes["right.png"]) < 3


def test_a_jpeg_that_is_cut_in_its_scan_stays_truncated(tmp_path):
    data = jpeg_of(GREY)
    outcomes = frames_of(tmp_path, {"tried.jpg": data[: len(data) * 2 // 3]})
    assert outcomes["tried.jpg"].reason == "undecodable"
    assert "truncated" in outcomes["tried.jpg"].detail


def test_a_jpeg_ls_frame_without_the_sequences_delimiter(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 12, False), 12), uid.JPEGLSLossless)
    assert data.endswith(b"\xfe\xff\xdd\xe0\0\0\0\0")
    outcome, right = frame_and_right_one(tmp_path, data[:-8], GREY)
    assert outcome.largest_difference(right) <= 1


def test_a_jpeg_2000_frame_without_the_sequences_delimiter(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 16, False), 16), uid.JPEG2000Lossless)
    assert data.endswith(b"\xfe\xff\xdd\xe0\0\0\0\0")
    outcome, right = frame_and_right_one(tmp_path, data[:-8], GREY)
    assert outcome.largest_difference(right) <= 1


def test_a_cut_jpeg_ls_frame_without_the_sequences_delimiter_stays_truncated(tmp_path):
    data = encoded(dataset(stored_values(UPRIGHT, 12, False), 12), uid.JPEGLSLossless)
    outcome, _ = frame_and_right_one(tmp_path, data[: len(data) * 2 // 3], GREY)
    assert outcome.reason == "undecodable"


# --------------------------------------------------------------------------------------- asking about one


def answers_of(folder, **tags: object) -> list[dict]:
    """Ask the small model about a file with tags; return its answers."""
    file = dataset(stored_values(picture(256, 256), 12, False), 12)
    file.StudyInstanceUID, file.SeriesInstanceUID, file.PatientID = "1.2.3", "1.2.3.4", "1"
    for name, value in tags.items():
        setattr(file, name, value)
    (folder / "a.dcm").write_bytes(encoded(file))
    arguments = ["--model", str(ROOT / "resources/rosalia"), "--image", str(folder / "a.dcm"), "--no-text"]
    arguments += ["--instruction", "Segment the opacity.", "--output", str(folder / "out")]
    assert predict.main(arguments) == 0
    return json.loads((folder / "out/answers.json").read_text(encoding="utf-8"))["findings"]


def test_an_answer_is_written_for_a_japanese_file(tmp_path):
    tags = {"SpecificCharacterSet": ["", "ISO 2022 IR 87"], "PatientName": "Yamada^Tarou=山田^太郎=やまだ^たろう"}
    assert len(answers_of(tmp_path, **tags)) == 1


def test_an_answer_is_written_for_a_file_with_odd_dates_and_sex(tmp_path):
    import pydicom

    with pydicom.config.disable_value_validation():
        answers = answers_of(tmp_path, StudyTime="23:59:07", StudyDate="05.01.2024", PatientSex="X",
                           PatientBirthDate="1950-02-01")  # fmt: skip
    assert len(answers) == 1
