"""DICOM files after public bug reports: each with the grey levels that it should have."""

import cv2

from input_doors import frame_and_right_one


def tried(shared, folder, name: str, window: str = "minmax"):
    """Return the outcome of a file and that of its right grey levels."""
    given = shared / "fixtures/public_reports" / name
    right_grey = cv2.imread(str(given / "right_grey.png"), cv2.IMREAD_GRAYSCALE)
    return frame_and_right_one(folder, (given / "image.dcm").read_bytes(), right_grey, window=window)


def test_a_modality_table_of_12_bits_is_used(shared, tmp_path):
    outcome, right = tried(shared, tmp_path, "d1_modality_lut_12")
    assert outcome.largest_difference(right) <= 1


def test_a_voi_table_is_scaled_by_its_own_largest_value(shared, tmp_path):
    outcome, right = tried(shared, tmp_path, "d2_voi_lut_16_said_12_real", "voi")
    assert outcome.largest_difference(right) <= 1


def test_values_above_bits_stored_are_used_or_named(shared, tmp_path):
    outcome, right = tried(shared, tmp_path, "d4_bits_stored_too_small")
    if outcome.reason:
        assert outcome.reason == "undecodable"
        assert "BitsStored" in outcome.detail
    else:
        assert outcome.largest_difference(right) <= 1


def test_a_colour_codestream_said_to_be_grey_is_read_or_refused(shared, tmp_path):
    outcome, right = tried(shared, tmp_path, "d5_jpeg_rgb_said_mono")
    if outcome.reason:
        assert outcome.reason == "undecodable"
        assert "component" in outcome.detail
    else:
        assert outcome.mean_difference(right) < 3


def test_rows_and_columns_of_the_codestream_win_or_the_detail_names_both(shared, tmp_path):
    outcome, right = tried(shared, tmp_path, "d6_rows_columns_swapped")
    if outcome.reason:
        assert outcome.reason == "undecodable"
        assert "96 x 80" in outcome.detail
        assert "80 x 96" in outcome.detail
    else:
        assert outcome.mean_difference(right) < 3


def test_a_jpeg_of_8_bits_is_read_under_a_header_of_16(shared, tmp_path):
    outcome, right = tried(shared, tmp_path, "d7_alloc16_jpeg8")
    assert outcome.mean_difference(right) < 3
