"""MIMIC-CXR trees, with and without the official tables."""

from collections import Counter
from pathlib import Path

import polars as pl
import pytest

from cohort_runs import options, run_cohort, write_csv
from dicom_files import dataset, encoded, picture, stored_values
from ils.cohort.check import check_inputs, mimic_tables, source_files
from ils.cohort.mimic import acquired_at
from ils.core.run import UserError


@pytest.fixture(scope="module")
def xray() -> bytes:
    """A whole frontal chest X-ray as a DICOM file."""
    return encoded(dataset(stored_values(picture(200, 180), 12, False), 12))


def mimic_tree(root: Path, xray: bytes) -> None:
    """Three patients: s1 has AP, PA and a lateral; s2 nothing in the table; s3 a missing file; s4 no report."""
    images = {
        ("10000032", "50000001"): ["aaaa-ap", "bbbb-pa", "cccc-lat"],
        ("10000032", "50000002"): ["dddd-none"],
        ("10000764", "50000003"): [],
        ("11000011", "50000004"): ["ffff-pa"],
    }
    for (subject, study), names in images.items():
        patient = root / f"files/p{subject[:2]}/p{subject}"
        (patient / f"s{study}").mkdir(parents=True)
        if study != "50000004":
            (patient / f"s{study}.txt").write_text("FINDINGS: clear")
        for name in names:
            (patient / f"s{study}" / f"{name}.dcm").write_bytes(b"not opened" if name != "dddd-none" else xray)
        (patient / f"s{study}" / "index.html").write_text("x")


RECORDS = [
    ("10000032", "50000001", "aaaa-ap"),
    ("10000032", "50000001", "bbbb-pa"),
    ("10000032", "50000001", "cccc-lat"),
    ("10000032", "50000002", "dddd-none"),
    ("10000764", "50000003", "eeee-pa"),
    ("11000011", "50000004", "ffff-pa"),
]
METADATA = [
    ("aaaa-ap", "AP", "3056", "2544", "21800506", "80556.875", ""),
    ("bbbb-pa", "PA", "3056", "2544", "21800506", "213014.531", ""),
    ("cccc-lat", "", "3056", "2544", "21800506", "213015", "lateral"),
    ("dddd-none", "", "200", "180", "21800507", "", ""),
    ("eeee-pa", "PA", "3056", "2544", "", "", ""),
    ("ffff-pa", "", "3056", "2544", "21800506", "0", "postero-anterior"),
]


def write_tables(folder: Path) -> None:
    paths = [(image, f"files/p{p[:2]}/p{p}/s{s}/{image}.dcm", s, p) for p, s, image in RECORDS]
    write_csv(folder / "cxr-record-list.csv.gz", ("dicom_id", "path", "study_id", "subject_id"), paths)
    header = ("dicom_id", "ViewPosition", "Rows", "Columns", "StudyDate", "StudyTime", "ViewCodeSequence_CodeMeaning")
    write_csv(folder / "mimic-cxr-2.0.0-metadata.csv.gz", header, METADATA)
    splits = [
        ("train" if p == "10000764" else "validate", image, s, p) for p, s, image in RECORDS if image != "ffff-pa"
    ]
    write_csv(folder / "mimic-cxr-2.0.0-split.csv.gz", ("split", "dicom_id", "study_id", "subject_id"), splits)


def test_a_tree_with_its_official_tables(tmp_path, xray):
    root, tables = tmp_path / "mimic", tmp_path / "jpg"
    mimic_tree(root, xray)
    write_tables(tables)
    for base in (root, root / "files"):
        result = run_cohort(tmp_path, source="mimic", root=str(base), tables=str(tables))
        result.check_conserved(6)
        assert result.reasons == {"cccc-lat": "not_frontal", "eeee-pa": "missing_file"}
        found = {row["image_id"]: row for row in result.accepted.iter_rows(named=True)}
        assert [found[image]["rank"] for image in ("bbbb-pa", "aaaa-ap")] == [0, 1]
        assert found["aaaa-ap"]["acquired"] == "21800506080556.875000"
        assert found["aaaa-ap"]["report_path"] == str(root / "files/p10/p10000032/s50000001.txt")
        assert found["ffff-pa"]["report_path"] is None
        assert found["dddd-none"]["view"] == "PA"  # from its header
        assert found["dddd-none"]["split"] == "validate"
        assert (found["aaaa-ap"]["study_id"], found["aaaa-ap"]["subject_id"]) == ("50000001", "10000032")
    assert len(source_files(options(source="mimic", root=str(root), tables=str(tables)))["tables"]) == 3


def test_a_bare_tree_is_walked(tmp_path, xray):
    mimic_tree(tmp_path / "mimic", xray)
    for path in (tmp_path / "mimic").rglob("*-*.dcm"):
        path.write_bytes(xray)
    result = run_cohort(tmp_path, source="mimic", root=str(tmp_path / "mimic"))
    result.check_conserved(5)
    assert result.reasons == {}
    assert set(result.accepted["split"]) <= {"train", "validate", "test"}
    assert result.accepted.filter(pl.col("image_id") == "ffff-pa")["subject_id"].to_list() == ["11000011"]


def test_study_ids_are_left_out_with_and_without_the_s(tmp_path, xray):
    mimic_tree(tmp_path / "mimic", xray)
    write_tables(tmp_path / "mimic")
    (tmp_path / "x.txt").write_text("s50000001\n50000002\n")
    result = run_cohort(tmp_path, source="mimic", root=str(tmp_path / "mimic"), exclude=str(tmp_path / "x.txt"))
    assert Counter(result.reasons.values())["listed"] == 4


def test_wrong_trees_and_tables_stop_with_one_sentence(tmp_path, xray):
    root = tmp_path / "mimic"
    root.mkdir()
    with pytest.raises(UserError, match=r"cohort\.root: .* has no folder files/"):
        check_inputs(options(source="mimic", root=str(root)))
    (root / "files").mkdir()
    with pytest.raises(UserError, match="is empty"):
        check_inputs(options(source="mimic", root=str(root)))
    with pytest.raises(UserError, match="there is no folder"):
        check_inputs(options(source="mimic", root=str(tmp_path / "none")))
    mimic_tree(root, xray)
    write_tables(root)
    check_inputs(options(source="mimic", root=str(root)))
    with pytest.raises(UserError, match=r"cohort\.tables: there is no folder"):
        check_inputs(options(source="mimic", root=str(root), tables=str(tmp_path / "none")))
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(UserError, match=r"cohort\.tables: .*elsewhere holds none of .*-split\.csv"):
        check_inputs(options(source="mimic", root=str(root), tables=str(tmp_path / "elsewhere")))
    write_csv(root / "mimic-cxr-2.1.0-split.csv", ("dicom_id", "split"), [("a", "train")])
    with pytest.raises(UserError, match=r"mimic-cxr-2\.0\.0-split\.csv and mimic-cxr-2\.1\.0-split\.csv"):
        check_inputs(options(source="mimic", root=str(root)))
    (root / "mimic-cxr-2.0.0-split.csv.gz").unlink()
    write_csv(root / "mimic-cxr-2.1.0-split.csv", ("dicom", "split"), [("a", "train")])
    with pytest.raises(UserError, match="lacks the column dicom_id"):
        check_inputs(options(source="mimic", root=str(root)))
    (root / "mimic-cxr-2.1.0-split.csv").unlink()
    (root / "cxr-record-list.csv.gz").write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(UserError, match="cannot be read as CSV"):
        check_inputs(options(source="mimic", root=str(root)))


def test_tables_of_two_folders(tmp_path, xray):
    root, more = tmp_path / "mimic", tmp_path / "jpg"
    mimic_tree(root, xray)
    write_tables(root)
    more.mkdir()
    write_csv(more / "mimic-cxr-2.0.0-split.csv", ("dicom_id", "split"), [("a", "test")])
    found = mimic_tables(str(root), str(more))
    assert {kind: path.parent for kind, path in found.items()} == {"record-list": root, "metadata": root, "split": more}


def test_acquisition_times_of_the_table():
    assert acquired_at("21800506", "80556.875") == "21800506080556.875000"
    assert acquired_at("21800506", "0") == "21800506000000.000000"
    assert acquired_at("21800506", "213014.531") > acquired_at("21800506", "80556.875")
    assert acquired_at("21800506", "") == "21800506"
    assert acquired_at("", "1") is None
