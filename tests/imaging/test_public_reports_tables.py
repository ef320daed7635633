"""Manifests after public bug reports: ids with invisible signs, paths of other systems, ids that Excel has cut."""

import re
import unicodedata

from cohort_runs import of, run_cohort
from input_doors import result_or_sentence


def tried(shared, folder, name: str, *images: str):
    """Run the cohort on a given manifest, whose ``images`` are chests; a column of findings is added if it has none."""
    text = (shared / "fixtures/public_reports" / name / "manifest.csv").read_text(encoding="utf-8")
    header, *rows = text.splitlines()
    if "findings" not in header:
        header, rows = f"{header},findings", [f"{row},Clear lungs." for row in rows]
    (folder / "manifest.csv").write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    for image in images:
        (folder / image).parent.mkdir(exist_ok=True)
        (folder / image).write_bytes(of())
    return run_cohort(folder, manifest=str(folder / "manifest.csv"), shards=1)


def test_ids_that_look_the_same_are_one_subject_or_stop_the_run(shared, tmp_path):
    images = ("1.dcm", "2.dcm", "3.dcm", "4.dcm")
    result, sentence = result_or_sentence(lambda: tried(shared, tmp_path, "m1_invisible_characters", *images))
    if result is None:
        assert all(re.search(rf"\b{line}\b", sentence) for line in (2, 3, 4, 5))
        return
    subjects = dict(result.accepted.select("image_id", "subject_id").iter_rows())
    assert subjects["i1"] == subjects["i2"] == "PAT001"
    assert subjects["i3"] == subjects["i4"] == "Müller"


def test_paths_of_other_systems_are_found_or_named(shared, tmp_path):
    decomposed = unicodedata.normalize("NFD", "Müller.dcm")
    images = ("dicom/1.dcm", "2.dcm", decomposed)
    result, sentence = result_or_sentence(lambda: tried(shared, tmp_path, "m2_nfd_and_windows_paths", *images))
    if result is None:
        assert "differs only in" in sentence
        return
    for image in ("i1", "i2", "i3"):
        assert image not in result.reasons or "differs only in" in result.details[image]


def test_ids_that_excel_has_cut_stop_the_run_or_are_bad_rows(shared, tmp_path):
    images = ("1.dcm", "2.dcm", "3.dcm")
    result, sentence = result_or_sentence(lambda: tried(shared, tmp_path, "m3_fifteen_digits", *images))
    if result is None:
        assert "15 digits" in sentence
        return
    assert result.reasons == dict.fromkeys(("i1", "i2", "i3"), "bad_row")
    assert all("15 digits" in detail for detail in result.details.values())
