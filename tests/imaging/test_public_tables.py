"""Tables, ids, paths and masks as spreadsheets, other systems and drawing programs save them."""

import json
import os
import re
import unicodedata
from collections.abc import Iterable

import cv2
import numpy as np
import pytest
from PIL import Image
from pydicom import uid

from cohort_runs import Result, of, run_cohort, run_frames
from cxr.annotations.regions import read_annotations
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table
from cxr.geometry.affine import fit_affine
from cxr.medground.logic.facts import Facts, read_planes
from cxr.reporting.agreement.references import Region, load_reference, region_in_frame
from cxr.reporting.review.sheets import read_sheets
from dicom_files import dataset, encoded
from input_doors import result_or_sentence
from medground_data import read_source, source_keys

HEADER = "subject_id,study_id,image_id,image_path,findings,view"


def cohort_of(folder, rows: Iterable[str], header: str = HEADER, **options: object) -> Result:
    """Run the cohort on a manifest of these rows, in UTF-8, whose files exist or not."""
    data = ("\n".join([header, *rows]) + "\n").encode()
    (folder / "manifest.csv").write_bytes(data)
    return run_cohort(folder, manifest=str(folder / "manifest.csv"), **({"shards": 1} | options))


def chests(folder, *names: str) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(of(SeriesNumber=number + 1))


def subjects_of(folder, *subjects: str) -> tuple[dict[str, str], str]:
    """Return {image: subject} of one image for each subject id, and the sentence where the run stops."""
    names = [f"{number}.dcm" for number in range(len(subjects))]
    chests(folder, *names)
    rows = [f"{subject},s{n},i{n},{n}.dcm,Clear lungs.,PA" for n, subject in enumerate(subjects)]
    result, sentence = result_or_sentence(lambda: cohort_of(folder, rows))
    return dict(result.accepted.select("image_id", "subject_id").iter_rows()) if result else {}, sentence


def names_lines(text: str, *lines: int) -> bool:
    return all(re.search(rf"\b{line}\b", text) for line in lines)


# -------------------------------------------------------------------------------------------------- ids


def test_a_byte_order_mark_inside_a_table_makes_no_second_subject(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "PAT7", "\ufeffPAT7", "PAT8")
    assert names_lines(sentence, 2, 3) if sentence else subjects == {"i0": "PAT7", "i1": "PAT7", "i2": "PAT8"}


def test_a_soft_hyphen_makes_no_second_subject(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "PAT-7", "PAT-\u00ad7")
    assert names_lines(sentence, 2, 3) if sentence else set(subjects.values()) == {"PAT-7"}


def test_a_word_joiner_and_a_direction_mark_make_no_second_subject(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "A1", "A\u20601", "\u200eA1")
    assert names_lines(sentence, 2, 3, 4) if sentence else set(subjects.values()) == {"A1"}


def test_a_no_break_space_around_an_id_is_stripped(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "PAT7", "PAT7\u00a0", "\u00a0PAT7")
    assert names_lines(sentence, 2, 3, 4) if sentence else set(subjects.values()) == {"PAT7"}


def test_a_no_break_space_inside_an_id_is_a_blank(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "PAT 7", "PAT\u00a07")
    assert names_lines(sentence, 2, 3) if sentence else len(set(subjects.values())) == 1


def test_a_decomposed_accent_in_a_study_id_makes_no_second_study(tmp_path):
    chests(tmp_path, "0.dcm", "1.dcm")
    studies = ("Größe-1", unicodedata.normalize("NFD", "Größe-1"))
    rows = [f"p,{study},i{n},{n}.dcm,Clear lungs.,PA" for n, study in enumerate(studies)]
    result, sentence = result_or_sentence(lambda: cohort_of(tmp_path, rows))
    assert names_lines(sentence, 2, 3) if result is None else result.accepted["study_id"].n_unique() == 1


def test_an_invisible_sign_in_a_list_of_images_to_exclude_is_no_difference(tmp_path):
    chests(tmp_path, "0.dcm", "1.dcm")
    (tmp_path / "out.csv").write_text("image_id\n\ufeffi0\u200b\n", encoding="utf-8")
    rows = [f"p{n},s{n},i{n},{n}.dcm,Clear lungs.,PA" for n in range(2)]
    result = cohort_of(tmp_path, rows, exclude=str(tmp_path / "out.csv"))
    assert result.reasons == {"i0": "listed"}


def test_a_number_with_and_without_a_decimal_point_is_one_subject_or_stops(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "123", "123.0", "124")
    named = {image for image in ("i0", "i1", "i2") if image not in subjects}
    assert sentence or named or subjects["i0"] == subjects["i1"] != subjects["i2"]


def test_a_column_of_ids_with_decimal_points_and_a_blank_is_not_split_from_its_numbers(tmp_path):
    chests(tmp_path, "0.dcm", "1.dcm", "2.dcm")
    rows = ["1001.0,s0,i0,0.dcm,Clear lungs.,PA", "1001,s1,i1,1.dcm,Clear lungs.,PA", "1002.0,s2,i2,2.dcm,Clear.,PA"]
    result, sentence = result_or_sentence(lambda: cohort_of(tmp_path, rows))
    if result is not None:
        subjects = dict(result.accepted.select("image_id", "subject_id").iter_rows())
        assert "i0" not in subjects or "i1" not in subjects or subjects["i0"] == subjects["i1"]
    else:
        assert names_lines(sentence, 2) or names_lines(sentence, 3)


def test_ids_that_a_spreadsheet_has_made_a_day_are_named(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "01-Mar", "02-Mar", "17-4-2211")
    assert names_lines(sentence, 2, 3) if sentence else subjects == {"i2": "17-4-2211"}


def test_long_ids_whose_last_digits_are_zeros_are_named(tmp_path):
    ids = ("98765432101234500", "98765432101234500", "98765432101235600")
    chests(tmp_path, "0.dcm", "1.dcm", "2.dcm")
    rows = [f"{subject},s{n},i{n},{n}.dcm,Clear lungs.,PA" for n, subject in enumerate(ids)]
    result, sentence = result_or_sentence(lambda: cohort_of(tmp_path, rows))
    if result is None:
        assert "digits" in sentence
    else:
        assert result.reasons == dict.fromkeys(("i0", "i1", "i2"), "bad_row")


def test_long_ids_with_all_their_digits_are_accepted(tmp_path):
    subjects, sentence = subjects_of(tmp_path, "98765432101234567", "98765432101234568")
    assert not sentence
    assert set(subjects.values()) == {"98765432101234567", "98765432101234568"}


def test_a_text_that_a_spreadsheet_has_cut_is_named(tmp_path, caplog):
    chests(tmp_path, "0.dcm")
    text = ("The lungs are clear. " * 2000)[:32_767]
    result, sentence = result_or_sentence(lambda: cohort_of(tmp_path, [f"p,s,i,0.dcm,{text},PA"]))
    messages = sentence + caplog.text + ("" if result is None else " ".join(result.details.values()))
    assert re.search(r"32[ ,.]?767", messages)


# ------------------------------------------------------------------------------------------------ paths


def found_or_named(folder, path: str, *others: str) -> bool:
    """Whether an image path is resolved, or its detail names the file that differs; ``others``: good images."""
    chests(folder, "good.dcm")
    rows = [f"p0,s0,i0,{path},Clear lungs.,PA", "p1,s1,i1,good.dcm,Clear lungs.,PA"]
    result = cohort_of(folder, rows)
    return "i0" not in result.reasons or "differs only in" in result.details["i0"]


def test_a_path_with_a_point_and_double_slashes_is_found(tmp_path):
    chests(tmp_path, "films/a.dcm")
    assert found_or_named(tmp_path, "./films//./a.dcm")


def test_a_path_of_a_file_url_is_found(tmp_path):
    chests(tmp_path, "films/a.dcm")
    assert found_or_named(tmp_path, f"file://{tmp_path}/films/a.dcm")


def test_a_relative_file_url_is_found(tmp_path):
    chests(tmp_path, "films/a.dcm")
    assert found_or_named(tmp_path, "file:films/a.dcm")


def test_a_percent_encoded_path_is_found(tmp_path):
    chests(tmp_path, "Bilder Süd/a 1.dcm")
    assert found_or_named(tmp_path, "Bilder%20S%C3%BCd/a%201.dcm")


def test_a_name_that_really_holds_a_percent_sign_is_found(tmp_path):
    chests(tmp_path, "a%201.dcm", "a 1.dcm")
    result = cohort_of(tmp_path, ["p0,s0,i0,a%201.dcm,Clear lungs.,PA"])
    assert result.accepted["path"][0].endswith("a%201.dcm")
    assert result.reasons == {}


def test_a_folder_in_another_case_is_found(tmp_path):
    chests(tmp_path, "Films/IMG1.dcm")
    assert found_or_named(tmp_path, "films/img1.DCM")


def test_two_files_that_differ_in_case_are_named_and_none_is_taken(tmp_path):
    chests(tmp_path, "Img.dcm", "IMG.dcm", "good.dcm")
    rows = ["p0,s0,i0,img.dcm,Clear lungs.,PA", "p1,s1,i1,good.dcm,Clear lungs.,PA"]
    result = cohort_of(tmp_path, rows)
    assert result.reasons == {"i0": "missing_file"}
    assert re.search(r"2 files|two files|several files|differ only in", result.details["i0"])


def test_a_composed_name_finds_a_decomposed_folder(tmp_path):
    chests(tmp_path, unicodedata.normalize("NFD", "Größen") + "/1.dcm")
    assert found_or_named(tmp_path, "Größen/1.dcm")


@pytest.mark.parametrize(("file", "report_path"), [("Befunde/1.txt", "Befunde\\1.txt"), ("REPORT1.TXT", "report1.txt")])
def test_a_report_by_a_windows_path_or_in_another_case_is_found(tmp_path, file, report_path):
    chests(tmp_path, "0.dcm")
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text("FINDINGS: Clear lungs.")
    header = "subject_id,study_id,image_id,image_path,report_path,view"
    result = cohort_of(tmp_path, [f"p,s,i,0.dcm,{report_path},PA"], header)
    (row,) = result.accepted.to_dicts()
    assert row["report_path"] is not None or "differs only in" in str(result.details)


def test_a_pipe_as_a_report_is_a_missing_or_unreadable_report(tmp_path):
    chests(tmp_path, "0.dcm")
    os.mkfifo(tmp_path / "r.txt")
    header = "subject_id,study_id,image_id,image_path,report_path,view"
    result = cohort_of(tmp_path, ["p,s,i,0.dcm,r.txt,PA"], header)
    (row,) = result.accepted.to_dicts()
    assert row["report_path"] is None


# ------------------------------------------------------------------------------------------------- days


def first_images(folder, *days: str) -> tuple[set[str], str]:
    """Return the images (i0 …, one a day, of one study) that the frames choose, and the sentence of a stop.

    Images whose row is excluded are named too.
    """
    names = [f"{number}.png" for number in range(len(days))]
    for number, name in enumerate(names):
        cv2.imwrite(str(folder / name), np.random.default_rng(number).integers(0, 255, (200, 180), np.uint8))
    rows = [f"p,s,i{n},{n}.png,Clear lungs.,PA,{day}" for n, day in enumerate(days)]
    result, sentence = result_or_sentence(lambda: cohort_of(folder, rows, f"{HEADER},acquired"))
    if result is None:
        return set(), sentence
    excluded = run_frames(result.paths["00"], folder / "frames.h5")
    chosen = {f"i{n}" for n in range(len(days))} - excluded.keys() - result.reasons.keys()
    return chosen, " ".join(f"{image} {reason}" for image, reason in result.reasons.items())


def test_days_with_points_are_sorted_as_days(tmp_path):
    assert first_images(tmp_path, "03.02.2024", "28.01.2024", "15.03.2023") == ({"i2"}, "")


def test_days_with_points_and_times_are_sorted_as_days(tmp_path):
    assert first_images(tmp_path, "01.02.2024 00:05", "31.01.2024 23:50", "01.02.2024 09:00") == ({"i1"}, "")


def test_american_days_that_can_be_nothing_else_are_sorted_as_days(tmp_path):
    assert first_images(tmp_path, "02/01/2024", "01/31/2024", "12/31/2023") == ({"i2"}, "")


def test_days_without_leading_zeros_are_sorted_as_days(tmp_path):
    assert first_images(tmp_path, "2024/11/5", "2024/2/17", "2024/2/9") == ({"i2"}, "")


def test_days_in_the_form_of_dicom_are_sorted_as_days(tmp_path):
    assert first_images(tmp_path, "20240203", "20240128101500", "20240129") == ({"i1"}, "")


def test_days_that_may_be_american_or_british_are_named(tmp_path, caplog):
    chosen, sentence = first_images(tmp_path, "03/02/2024", "02/03/2024")
    messages = sentence + caplog.text
    assert re.search(r"acquired", messages) or re.search(r"i0 bad_row.*i1 bad_row", messages)
    assert chosen <= {"i0", "i1"}


def test_days_of_two_forms_in_one_column_are_named(tmp_path, caplog):
    chosen, sentence = first_images(tmp_path, "31.01.2024", "2024-01-30", "1 Feb 2024")
    assert "acquired" in sentence + caplog.text or "bad_row" in sentence
    assert chosen <= {"i0", "i1", "i2"}


# ------------------------------------------------------------------------------------------ MedGround's tables

BOX = (10, 10, 30, 40)
LESION = np.zeros((64, 96), bool)
LESION[BOX[1] : BOX[3], BOX[0] : BOX[2]] = True


def pictures(folder, *names: str) -> None:
    for number, name in enumerate(names):
        cv2.imwrite(str(folder / f"{name}.png"), np.random.default_rng(number).integers(0, 255, (64, 96), np.uint8))
        cv2.imwrite(str(folder / f"{name}_m.png"), LESION.astype(np.uint8) * 255)


def medground(folder, data: bytes | str, name: str = "m.csv", **keys: object) -> tuple[dict[str, str], dict[str, str]]:
    """Read a manifest of MedGround; return {image: split} and {image: reason and detail}."""
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    chosen = {"kind": "folder", "classes": {"dot": {}, "Größe": {}}} | keys
    read_source(folder, source_keys(manifest=str(folder / name), **chosen))
    images = read_table(folder / "sources/images.parquet")
    excluded = read_table(folder / "sources/excluded.parquet")
    return dict(images.select("image_id", "split").iter_rows()), {
        image: f"{reason} {detail}"
        for image, reason, detail in excluded.select("image_id", "reason", "detail").iter_rows()
    }


ROWS = "image_path,mask_path,split,class\na.png,a_m.png,train,dot\nb.png,b_m.png,test,dot\n"
BOTH = ({"a": "train", "b": "test"}, {})


def test_a_medground_manifest_in_windows_letters(tmp_path):
    pictures(tmp_path, "a", "b")
    assert medground(tmp_path, ROWS.replace("dot", "Größe").encode("cp1252")) == BOTH


def test_a_medground_manifest_in_utf16(tmp_path):
    pictures(tmp_path, "a", "b")
    assert medground(tmp_path, ROWS.encode("utf-16")) == BOTH


def test_a_medground_manifest_with_tabs_and_headings_of_a_spreadsheet(tmp_path):
    pictures(tmp_path, "a", "b")
    text = ROWS.replace("image_path,mask_path,split,class", "Image Path,Mask-Path,Split,Class").replace(",", "\t")
    assert medground(tmp_path, text) == BOTH


def test_a_medground_manifest_that_names_its_delimiter(tmp_path):
    pictures(tmp_path, "a", "b")
    assert medground(tmp_path, "sep=;\r\n" + ROWS.replace(",", ";").replace("\n", "\r\n")) == BOTH


def test_a_medground_manifest_with_old_line_ends(tmp_path):
    pictures(tmp_path, "a", "b")
    assert medground(tmp_path, ROWS.replace("\n", "\r")) == BOTH


def test_other_words_for_the_splits_of_a_medground_manifest(tmp_path):
    pictures(tmp_path, "a", "b")
    assert medground(tmp_path, ROWS.replace("train", "Training").replace("test", "val")) == (
        {"a": "train", "b": "validate"}, {},
    )  # fmt: skip


def test_a_short_row_of_a_medground_manifest_is_named(tmp_path):
    pictures(tmp_path, "a", "b")
    result, sentence = result_or_sentence(
        lambda: medground(tmp_path, ROWS.replace("b.png,b_m.png,test,dot", "b.png,b_m.png"))
    )
    if result is None:
        assert names_lines(sentence, 3)
    else:
        images, excluded = result
        assert images == {"a": "train"}
        assert any(text.startswith("bad_row") and names_lines(text, 3) for text in excluded.values())


def test_a_workbook_as_a_medground_manifest_is_named(tmp_path):
    pictures(tmp_path, "a")
    result, sentence = result_or_sentence(lambda: medground(tmp_path, b"PK\x03\x04\x14\0\x06\0", "m.xlsx"))
    assert result is None
    assert "workbook" in sentence
    assert "CSV" in sentence


def test_subjects_of_a_medground_manifest_that_look_the_same_are_in_one_split(tmp_path):
    pictures(tmp_path, "a", "b")
    text = "image_path,mask_path,split,class,subject_id\na.png,a_m.png,train,dot,P1\nb.png,b_m.png,test,dot,P1\u200b\n"
    result, sentence = result_or_sentence(lambda: medground(tmp_path, text))
    assert result is None or set(result[0].values()) != {"train", "test"}
    assert result is not None or names_lines(sentence, 2, 3)


def test_a_mask_path_of_windows_is_found_or_named(tmp_path):
    pictures(tmp_path, "a")
    (tmp_path / "masks").mkdir()
    (tmp_path / "a_m.png").rename(tmp_path / "masks/a_m.png")
    text = "image_path,mask_path,split,class\na.png,masks\\A_m.PNG,train,dot\n"
    images, excluded = medground(tmp_path, text)
    assert images == {"a": "train"} or "differs only in" in excluded["a"]


# ---------------------------------------------------------------------------------------------------- masks


def lesion_of(folder, write, name: str = "a_m.png", **more: object) -> tuple[np.ndarray | None, str]:
    """Return the lesion that a mask gives (64, 96), or None and the reason. ``write``: writes the mask at a path."""
    pictures(folder, "a")
    (folder / "a_m.png").unlink()
    write(folder / name)
    text = f"image_path,mask_path,split,class\na.png,{name},train,dot\n"
    (folder / "m.csv").write_text(text)
    keys = source_keys(kind="folder", manifest=str(folder / "m.csv"), classes={"dot": {}})
    read_source(folder, keys, size=96, **more)
    excluded = read_table(folder / "sources/excluded.parquet")
    if excluded.height:
        return None, f"{excluded['reason'][0]} {excluded['detail'][0]}"
    with Shard(folder / "sources/00.h5") as shard:
        return read_planes(shard, Facts.from_shard(shard), "a").mask["dot"][16:80], ""


def is_lesion_or(mask: np.ndarray | None, reason: str, *reasons: str) -> bool:
    """Whether the mask is the lesion to the pixel, or the image has one of the reasons."""
    return bool((mask == LESION).all()) if mask is not None else reason.split()[0] in reasons


def palette(path, indices: np.ndarray, *colours: tuple[int, int, int], **save: object) -> None:
    picture = Image.fromarray(indices.astype(np.uint8), "P")
    picture.putpalette([part for colour in colours for part in colour])
    picture.save(path, **save)


def test_a_palette_whose_index_0_is_white(tmp_path):
    def write(path):
        palette(path, LESION, (255, 255, 255), (200, 30, 30))

    assert is_lesion_or(*lesion_of(tmp_path, write), "unknown_label")


def test_a_palette_whose_index_1_is_black(tmp_path):
    def write(path):
        palette(path, LESION, (255, 255, 255), (0, 0, 0))

    assert is_lesion_or(*lesion_of(tmp_path, write), "unknown_label")


def test_a_palette_of_two_colours_with_transparency(tmp_path):
    def write(path):
        palette(path, LESION, (0, 0, 0), (0, 255, 0), transparency=0)

    assert is_lesion_or(*lesion_of(tmp_path, write), "unknown_label")


def test_an_inverted_mask_is_refused(tmp_path):
    mask, reason = lesion_of(tmp_path, lambda path: cv2.imwrite(str(path), np.where(LESION, 0, 255).astype(np.uint8)))
    assert is_lesion_or(mask, reason, "full_mask", "unknown_label", "inverted_mask")


def test_a_mask_of_one_bit(tmp_path):
    mask, _ = lesion_of(tmp_path, lambda path: Image.fromarray(LESION).save(path))
    assert (mask == LESION).all()


def test_a_mask_of_grey_and_full_opacity(tmp_path):
    def write(path):
        planes = np.stack([LESION * 255, np.full(LESION.shape, 255)], axis=-1).astype(np.uint8)
        Image.fromarray(planes, "LA").save(path)

    assert is_lesion_or(*lesion_of(tmp_path, write))


def test_a_mask_that_is_drawn_in_the_opacity(tmp_path):
    def write(path):
        planes = np.zeros((*LESION.shape, 4), np.uint8)
        planes[..., 0] = planes[..., 3] = LESION * 255
        Image.fromarray(planes, "RGBA").save(path)

    assert is_lesion_or(*lesion_of(tmp_path, write))


def test_a_white_mask_with_only_its_opacity_drawn(tmp_path):
    def write(path):
        planes = np.full((*LESION.shape, 4), 255, np.uint8)
        planes[..., 3] = LESION * 255
        Image.fromarray(planes, "RGBA").save(path)

    assert is_lesion_or(*lesion_of(tmp_path, write), "unknown_label", "full_mask")


def test_a_mask_of_16_bits(tmp_path):
    mask, _ = lesion_of(tmp_path, lambda path: cv2.imwrite(str(path), LESION.astype(np.uint16) * 65_535))
    assert (mask == LESION).all()


def test_a_mask_of_zeros_and_ones(tmp_path):
    mask, _ = lesion_of(tmp_path, lambda path: cv2.imwrite(str(path), LESION.astype(np.uint8)))
    assert (mask == LESION).all()


def test_a_mask_saved_as_jpeg(tmp_path):
    def write(path):
        cv2.imwrite(str(path), LESION.astype(np.uint8) * 255, [cv2.IMWRITE_JPEG_QUALITY, 70])

    assert is_lesion_or(*lesion_of(tmp_path, write, "a_m.jpg"), "unknown_label")


def test_a_mask_with_smoothed_edges(tmp_path):
    def write(path):
        cv2.imwrite(str(path), cv2.GaussianBlur(LESION.astype(np.uint8) * 255, (5, 5), 0))

    assert is_lesion_or(*lesion_of(tmp_path, write), "unknown_label")


def test_a_mask_of_white_paper_with_a_red_drawing(tmp_path):
    def write(path):
        cv2.imwrite(str(path), np.where(LESION[..., None], (0, 0, 255), (255, 255, 255)).astype(np.uint8))

    assert is_lesion_or(*lesion_of(tmp_path, write), "unknown_label")


def test_a_mask_as_a_dicom_file(tmp_path):
    def write(path):
        path.write_bytes(encoded(dataset(LESION.astype(np.uint8) * 255), uid.ExplicitVRLittleEndian))

    assert is_lesion_or(*lesion_of(tmp_path, write, "a_m.dcm"), "undecodable", "unknown_label")


def test_a_pipe_as_a_mask_is_a_row_with_a_reason(tmp_path):
    mask, reason = lesion_of(tmp_path, lambda path: os.mkfifo(path))
    assert mask is None
    assert reason.split()[0] in ("missing_file", "unreadable_file", "undecodable")


def test_a_mask_of_fractions(tmp_path):
    mask, reason = lesion_of(tmp_path, lambda path: np.save(path, LESION.astype(np.float32)), "a_m.npy")
    assert is_lesion_or(mask, reason)


# ---------------------------------------------------------------------------------------------------- COCO


def coco(folder, data: dict, encoding: str = "utf-8") -> str:
    path = folder / "coco.json"
    path.write_bytes(json.dumps(data).encode(encoding))
    return str(path)


def small_coco(**changes: object) -> dict:
    image = {"id": 1, "file_name": "a.png", "height": 1000, "width": 800}
    region = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [100, 200, 200, 100]}
    return {"images": [image], "categories": [{"id": 1, "name": "consolidation"}], "annotations": [region]} | changes


def boxes_of(path: str) -> list[tuple]:
    return [region.box for region in read_annotations("a.key", path, "coco").regions]


def test_a_coco_file_with_a_byte_order_mark(tmp_path):
    assert boxes_of(coco(tmp_path, small_coco(), "utf-8-sig")) == [(100, 200, 300, 300)]


def test_a_coco_file_in_utf16(tmp_path):
    assert boxes_of(coco(tmp_path, small_coco(), "utf-16")) == [(100, 200, 300, 300)]


def test_a_coco_file_whose_annotations_name_images_by_text(tmp_path):
    region = {"id": 1, "image_id": "1", "category_id": 1, "bbox": [100, 200, 200, 100]}
    assert boxes_of(coco(tmp_path, small_coco(annotations=[region]))) == [(100, 200, 300, 300)]


def test_a_coco_file_whose_categories_are_named_by_text(tmp_path):
    region = {"id": 1, "image_id": 1, "category_id": "1", "bbox": [100, 200, 200, 100]}
    assert boxes_of(coco(tmp_path, small_coco(annotations=[region]))) == [(100, 200, 300, 300)]


def test_an_annotation_of_an_image_that_is_not_listed_costs_no_other(tmp_path, caplog):
    first = small_coco()["annotations"][0]
    lost = first | {"id": 2, "image_id": 77}
    assert (100, 200, 300, 300) in boxes_of(coco(tmp_path, small_coco(annotations=[first, lost])))


def region_of(folder, **region: object) -> tuple[Region | None, str]:
    """Return the region that an annotation gives in its frame, or None and the reason."""
    annotation = {"id": 1, "image_id": 1, "category_id": 1} | region
    path = coco(folder, small_coco(annotations=[annotation]))
    reference = load_reference("agreement.references.x.path", "coco", path, {}, "{stem}")
    (only,) = reference.regions["a"]
    return region_in_frame(only, "consolidation", fit_affine((1000, 800), 512, "pad"), (1000, 800), 512)


IN_FRAME = [[102.4, 102.4, 204.8, 153.6]]
"""The box of :func:`small_coco` in its frame: 0.512 of its size, 51.2 px of padding to the left."""


def test_a_polygon_of_two_points_beside_a_good_box(tmp_path):
    region, _ = region_of(tmp_path, bbox=[100, 200, 200, 100], segmentation=[[100, 200, 300, 300]])
    assert region is not None
    np.testing.assert_allclose(region.boxes, IN_FRAME, atol=1.1)


def test_an_empty_polygon_beside_a_good_box(tmp_path):
    region, _ = region_of(tmp_path, bbox=[100, 200, 200, 100], segmentation=[[]])
    assert region is not None
    np.testing.assert_allclose(region.boxes, IN_FRAME, atol=1.1)


def test_a_flat_polygon_of_objects(tmp_path):
    corners = [{"x": x, "y": y} for x, y in ((100, 200), (300, 200), (300, 300), (100, 300))]
    region, reason = region_of(tmp_path, bbox=[100, 200, 200, 100], segmentation=corners)
    if region is None:
        assert reason == "broken_mask"
    else:
        np.testing.assert_allclose(region.boxes, IN_FRAME, atol=1.1)


def test_a_flat_polygon_of_numbers(tmp_path):
    corners = [100, 200, 300, 200, 300, 300, 100, 300]
    region, reason = region_of(tmp_path, bbox=[100, 200, 200, 100], segmentation=corners)
    if region is None:
        assert reason == "broken_mask"
    else:
        np.testing.assert_allclose(region.boxes, IN_FRAME, atol=1.1)


def test_a_reference_of_healthy_images_alone_is_read(tmp_path):
    path = coco(tmp_path, small_coco(annotations=[]))
    reference = load_reference("agreement.references.x.path", "coco", path, {}, "{stem}")
    assert reference.regions == {"a": []}


# ------------------------------------------------------------------------------------------- other doors


def test_a_sheet_of_a_reader_that_a_german_spreadsheet_saved(tmp_path):
    from cxr.reporting.review.page import read_form

    form = read_form("verdict")
    values = {"page": "abc", "item": "1", "note": "Größe, unscharf", "seconds": "7"}
    values |= {name: answers[0] for name, answers in form.values_by_question.items()}
    names = list(form.columns)
    text = "sep=;\r\n" + ";".join(names) + "\r\n" + ";".join(values.get(name, "") for name in names) + "\r\n"
    (tmp_path / "sheet.csv").write_bytes(text.encode("cp1252"))
    answers = read_sheets([str(tmp_path / "sheet.csv")], {"A": ("abc", ["1"])}, form, "review.sheets")
    assert answers["A"]["1"].note == "Größe, unscharf"


def test_a_table_of_boxes_in_utf16_with_semicolons_and_decimal_commas_is_read_or_named(tmp_path):
    from cxr.imaging.boxes import table

    text = "Image ID;x1;y1;x2;y2;Confidence;Class name\r\ni1;10,5;20;110,5;120;0,9;ILD\r\n"
    (tmp_path / "boxes.csv").write_bytes(text.encode("utf-16"))
    rows, sentence = result_or_sentence(lambda: table.read_boxes(str(tmp_path / "boxes.csv")))
    if rows is None:
        assert "boxes.table" in sentence
        assert re.search("number|decimal", sentence)
    else:
        assert rows.select("x1", "confidence").rows() == [(10.5, 0.9)]


def test_annotations_whose_ids_hold_an_invisible_sign_meet_their_images(tmp_path):
    text = "image_id,class_name,x_min,y_min,x_max,y_max,rad_id\n\ufeffa1\u200b,Consolidation,1,2,30,40,R1\n"
    (tmp_path / "vindr.csv").write_text(text, encoding="utf-8")
    regions = read_annotations("a.key", tmp_path / "vindr.csv", "vindr").regions
    assert [region.image for region in regions] == ["a1"]


def test_a_list_of_pictures_of_a_reference_in_windows_letters_and_another_case(tmp_path):
    from cxr.semisyn.detectors.reference_images import run_listing

    cv2.imwrite(str(tmp_path / "Bild1.png"), np.random.default_rng(0).integers(0, 255, (200, 180), np.uint8))
    text = "image_id;image_path;subject_id;Bemerkung\r\na;BILD1.PNG;p1;schön\r\n"
    (tmp_path / "pictures.csv").write_bytes(text.encode("cp1252"))
    reference = {"name": "x", "format": "coco", "path": coco(tmp_path, small_coco()), "image_id": "{stem}"}
    output = tmp_path / "pictures.parquet"
    result, sentence = result_or_sentence(
        lambda: run_listing(
            annotations=reference["path"],
            pictures=str(tmp_path / "pictures.csv"),
            output=str(output),
            reference=reference,
        )
    )
    del result
    if sentence:
        assert "differs only in" in sentence
    else:
        (row,) = read_table(output).to_dicts()
        assert row["image_id"] == "a"
        assert os.path.exists(
            row["path"] if "path" in row else next(v for v in row.values() if "png" in str(v).lower())
        )


def test_the_text_of_a_manifest_with_a_soft_hyphen_in_a_heading(tmp_path):
    chests(tmp_path, "0.dcm")
    header = "subject_id,study_id,image\u00ad_id,image_path,findings,view"
    result, sentence = result_or_sentence(lambda: cohort_of(tmp_path, ["p,s,i,0.dcm,Clear lungs.,PA"], header))
    assert (result is not None and result.accepted["image_id"].to_list() == ["i"]) or "image_id" in sentence


def test_a_split_with_a_no_break_space_is_a_split(tmp_path):
    chests(tmp_path, "0.dcm", "1.dcm")
    rows = ["p0,s0,i0,0.dcm,Clear lungs.,PA,Test\u00a0", "p1,s1,i1,1.dcm,Clear lungs.,PA,Train"]
    result = cohort_of(tmp_path, rows, f"{HEADER},split")
    assert dict(result.accepted.select("image_id", "split").iter_rows()) == {"i0": "test", "i1": "train"}
