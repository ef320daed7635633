"""MIMIC-CXR trees, with and without the official tables."""

from collections import Counter

import polars as pl
import pytest

from cohort_runs import options, run_cohort, write_csv
from cxr.base.errors import UserError
from cxr.imaging.cohort.check import check_inputs, mimic_tables, source_files
from cxr.imaging.cohort.mimic import acquired_at
from dicom_files import dataset, encoded, picture, stored_values
from mimic_tree import mimic_tree, write_tables


@pytest.fixture(scope="module")
def xray() -> bytes:
    """A whole frontal chest X-ray as a DICOM file."""
    return encoded(dataset(stored_values(picture(200, 180), 12, False), 12))


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
