"""Cohort: every input image is accounted for once, shards are stable, and mistakes give one sentence."""

import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cohort_runs import COLUMNS, manifest_of, options, run_cohort, run_frames, write_csv
from conftest import ROOT
from cxr.base.errors import UserError
from cxr.base.exclusions import REASONS
from cxr.base.hdf5 import Shard
from cxr.base.seeds import shard_of
from cxr.imaging.cohort.check import check_inputs, source_files
from cxr.imaging.cohort.split import hashed_split, subject_splits
from dicom_files import LOSSLESS, damaged, dataset, encoded, picture, stored_values


@pytest.fixture(scope="module")
def xray() -> bytes:
    """A whole frontal chest X-ray as a DICOM file."""
    return encoded(dataset(stored_values(picture(200, 180), 12, False), 12))


# ------------------------------------------------------------------------------------------ manifest


def test_a_manifest_with_everything(tmp_path, xray):
    folder = tmp_path / "given"
    (folder / "images").mkdir(parents=True)
    for name in "abc":
        (folder / f"images/{name}.dcm").write_bytes(xray)
    (folder / "r.txt").write_text("FINDINGS: none")
    header = ("note", "image_path", "image_id", "study_id", "subject_id", "report_path", "findings", "impression",
              "split", "acquired", "reason", "view")  # fmt: skip
    rows = [
        ("α, β", "images/a.dcm", "i1", "s1", "p1", "r.txt", "", "", "val", "2020", "x", ""),
        (
            "",
            str(folder / "images/b.dcm"),
            "i2",
            "s1",
            "p1",
            "gone.txt",
            "Line one\nline two",
            "Fine.",
            "",
            "2019",
            "",
            "AP",
        ),
        ("", "images/c.dcm", "i3", "s1", "p1", "", "", "", "", "2018", "y", "PA"),
    ]
    result = run_cohort(tmp_path, manifest=write_csv(folder / "m.csv", header, rows))
    result.check_conserved(3)
    found = {row["image_id"]: row for row in result.accepted.iter_rows(named=True)}
    assert [found[image]["rank"] for image in ("i3", "i1", "i2")] == [0, 1, 2]  # PA by time, then AP
    assert {row["split"] for row in found.values()} == {"validate"}
    assert found["i1"]["path"] == str(folder / "images/a.dcm")
    assert found["i1"]["report_path"] == str(folder / "r.txt")
    assert found["i2"]["report_path"] is None
    assert (found["i2"]["findings"], found["i2"]["impression"]) == ("Line one\nline two", "Fine.")
    assert (found["i1"]["findings"], found["i1"]["acquired"]) == (None, "2020")
    assert result.images["note"].to_list() == ["α, β", "", ""]
    assert result.images["manifest_reason"].to_list() == ["x", "", "y"]
    assert result.images["reason"].to_list() == [None] * 3


def test_paths_stay_relative_to_the_working_directory(tmp_path, xray, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("given").mkdir()
    Path("given/a.dcm").write_bytes(xray)
    write_csv(Path("given/m.csv"), COLUMNS, [("p", "s", "i", "a.dcm", "")])
    result = run_cohort(Path("."), manifest="given/m.csv")
    assert result.accepted["path"].to_list() == ["given/a.dcm"]


def test_bad_rows_are_rows(tmp_path, xray):
    (tmp_path / "a.dcm").write_bytes(xray)
    rows = [
        ("p", "s", "good", "a.dcm", ""),
        ("", "s", "no_subject", "a.dcm", ""),
        ("p", "", "no_study", "a.dcm", ""),
        ("p", "s", "", "a.dcm", ""),
        ("p", "s", "", "a.dcm", ""),
        ("p", "s", "no_path", "", ""),
        ("p", "../s", "slash", "a.dcm", ""),
        ("p", "s", "x" * 200, "a.dcm", ""),
        ("p", "s", "good", "a.dcm", ""),
        ("p", "s", "good", "b.dcm", ""),
        ("q", "t", "two_subjects", "q.dcm", ""),
        ("r", "t", "two_subjects_b", "r.dcm", ""),
        ("p", "s", "many_cells", "a.dcm", "", "more", "and more"),
        ("p", "s", "few"),
        (),
        ("", "", "", "", ""),
    ]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows))
    result.check_conserved(14)
    assert result.accepted["image_id"].to_list() == ["good"]
    counts = Counter(result.reasons.values())
    assert counts == {"bad_row": 11, "duplicate_image": 2}
    assert {image for image, reason in result.reasons.items() if reason == "duplicate_image"} == {"good-2", "good-3"}


texts = st.sampled_from(["", "a", "b", "c", "s1", "s2", "p1", "a/b", "x\ny", "ä", "good", "good-2"])


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.tuples(texts, texts, texts, texts), min_size=1, max_size=12), data=st.data())
def test_any_rows_in_any_order_are_kept_once(tmp_path_factory, rows, data):
    folder = tmp_path_factory.mktemp("rows")
    (folder / "there").write_text("no picture")  # where no file is there, the run stops
    rows = [*((*row, "") for row in rows), ("zz", "zz", "zz", "there", "")]
    result = run_cohort(folder, manifest=write_csv(folder / "m.csv", COLUMNS, rows), threads=1)
    result.check_conserved(sum(any(row) for row in rows))
    shuffled = data.draw(st.permutations(rows))
    again = run_cohort(folder, manifest=write_csv(folder / "m.csv", COLUMNS, shuffled), threads=1)
    assert Counter(again.reasons.values()) == Counter(result.reasons.values())


def test_a_header_that_is_not_a_manifest_stops_with_one_sentence(tmp_path):
    path = write_csv(tmp_path / "m.csv", ("subject_id", "study_id", "findings"), [("p", "s", "")])
    with pytest.raises(UserError, match=r"cohort\.manifest: .*m\.csv lacks the columns image_id, image_path: add them"):
        check_inputs(options(manifest=path))
    path = write_csv(tmp_path / "m.csv", COLUMNS[:4], [("p", "s", "i", "a.dcm")])
    with pytest.raises(UserError, match="has no column report_path or findings or impression: add one"):
        check_inputs(options(manifest=path))
    for rows in ([], [("", "", "", "", "")]):
        with pytest.raises(UserError, match="has no rows"):
            check_inputs(options(manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows)))
    with pytest.raises(UserError, match="twice"):
        check_inputs(options(manifest=write_csv(tmp_path / "m.csv", (*COLUMNS, "view", "view"), [("p",) * 7])))
    (tmp_path / "m.csv").write_bytes(b"subject_id,\xff\xfe\x00\n\x01\x02")
    with pytest.raises(UserError, match="UTF-8"):
        check_inputs(options(manifest=str(tmp_path / "m.csv")))
    for wrong in (str(tmp_path), str(tmp_path / "none.csv")):
        with pytest.raises(UserError, match=r"cohort\.manifest"):
            check_inputs(options(manifest=wrong))


def test_a_manifest_as_spreadsheets_save_it(tmp_path, xray):
    (tmp_path / "a.dcm").write_bytes(xray)
    (tmp_path / "m.csv").write_bytes(
        b"\xef\xbb\xbfsubject_id, study_id,image_id,image_path,report_path\r\np,s,i,a.dcm,\r\n"
    )
    assert run_cohort(tmp_path, manifest=str(tmp_path / "m.csv")).accepted.height == 1
    (tmp_path / "m.tsv").write_text("\t".join(COLUMNS) + "\np\ts\ti\ta.dcm\t\n")
    assert run_cohort(tmp_path, manifest=str(tmp_path / "m.tsv")).accepted.height == 1


def test_the_check_imports_no_heavy_package():
    code = "import sys; import cxr.imaging.cohort.check; heavy = ('numpy', 'polars', 'pydicom')"
    code += "\nprint([m for m in heavy if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "scripts", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------ splits, shards


def test_a_subject_in_two_splits_stops_the_run_without_naming_it(tmp_path, xray):
    split = {"pat7-0": "train", "pat7-1": "test"}
    manifest = manifest_of(tmp_path, {"pat7": 2, "pat8": 1}, xray, split)
    with pytest.raises(UserError, match="puts 1 subject in more than one split") as caught:
        run_cohort(tmp_path, manifest=manifest)
    assert "pat7" not in str(caught.value)


def test_a_split_given_once_holds_for_the_subject(tmp_path, xray):
    result = run_cohort(tmp_path, manifest=manifest_of(tmp_path, {"a": 3, "b": 1}, xray, {"a-1": "test"}))
    result.check_conserved(4)
    assert set(result.accepted.filter(pl.col("subject_id") == "a")["split"]) == {"test"}


def test_an_unknown_split_is_a_bad_row_and_a_column_of_them_a_mistake(tmp_path, xray):
    result = run_cohort(tmp_path, manifest=manifest_of(tmp_path, {"a": 2}, xray, {"a-0": "test", "a-1": "fold3"}))
    assert result.reasons == {"a-1-i": "bad_row"}
    with pytest.raises(UserError, match="named train, validate or test"):
        run_cohort(tmp_path, manifest=manifest_of(tmp_path, {"a": 2}, xray, {"a-0": "fold1", "a-1": "fold3"}))


def test_hashed_splits_have_their_shares():
    counts = Counter(hashed_split(f"p{n}", [60, 20, 20], 3) for n in range(20_000))
    assert {name: round(count / 20_000, 2) for name, count in counts.items()} == {
        "train": pytest.approx(0.6, abs=0.011), "validate": pytest.approx(0.2, abs=0.011),
        "test": pytest.approx(0.2, abs=0.011),
    }  # fmt: skip
    assert {hashed_split(f"p{n}", [0, 0, 100], 3) for n in range(100)} == {"test"}
    assert {hashed_split(f"p{n}", [98, 1, 1], 0) for n in range(2000)} == {"train", "validate", "test"}
    before = [hashed_split(f"p{n}", [98, 1, 1], 0) for n in range(1000)]
    assert list(subject_splits([(f"p{n}", "") for n in range(1000)], [98, 1, 1], 0).values()) == before


def test_a_new_study_changes_its_own_shard_only(tmp_path, xray):
    subjects = {f"p{n}": 1 for n in range(12)}
    first = run_cohort(tmp_path, manifest=manifest_of(tmp_path, subjects, xray))
    before = {name: path.read_bytes() for name, path in first.paths.items()}
    assert sum(table.height > 0 for table in first.shards.values()) > 2
    again = run_cohort(tmp_path, manifest=manifest_of(tmp_path, dict(reversed(subjects.items())), xray), threads=1)
    assert before == {name: path.read_bytes() for name, path in again.paths.items()}
    more = run_cohort(tmp_path, manifest=manifest_of(tmp_path, subjects | {"p5": 2}, xray))
    changed = {name for name, path in more.paths.items() if path.read_bytes() != before[name]}
    assert changed == {f"{shard_of('p5', 4):02d}"}


# --------------------------------------------------------------------------------- lists of the user


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x.txt", "a-0-i\nc-1\n\n"),
        ("x.csv", "dicom_id,label\na-0-i,Edema\nc-1-i,Edema\nzz,Edema\n"),
        ("y.csv", "a-0-i,Edema\nc-1,Edema\n"),
    ],
)
def test_listed_images_and_studies_are_left_out(tmp_path, xray, caplog, name, text):
    (tmp_path / name).write_text(text)
    manifest = manifest_of(tmp_path, {"a": 1, "b": 1, "c": 2}, xray)
    with caplog.at_level("WARNING", "cxr"):
        result = run_cohort(tmp_path, manifest=manifest, exclude=str(tmp_path / name))
    result.check_conserved(4)
    assert result.reasons == {"a-0-i": "listed", "c-1-i": "listed"}
    assert ("1 of its ids" in caplog.text) == ("zz" in text)
    with pytest.raises(UserError, match=r"cohort\.exclude: there is no file"):
        check_inputs(options(manifest=manifest, exclude=str(tmp_path / "none")))


def test_images_that_a_quality_table_fails(tmp_path, xray):
    folder = tmp_path / "CheXStruct"
    ids = ("image_id", "viewposition", "label")
    write_csv(folder / "global/mask_number.csv", ids, [("a-0-i", "PA", 1), ("b-0-i", "PA", 0), ("c-0-i", "AP", 1)])
    write_csv(folder / "global/abdomial_xray.csv", ("ratio", "label", "image_file"), [("1", "-1.0", "c-0-i.dcm")])
    write_csv(folder / "global/window.csv", ids, [("a-0-i", "PA", "1.0"), ("d-0-i", "PA", "")])
    manifest = manifest_of(tmp_path, {"a": 1, "b": 1, "c": 1, "d": 1}, xray)
    result = run_cohort(tmp_path, manifest=manifest, chexstruct=str(folder))
    result.check_conserved(4)
    assert result.reasons == {"b-0-i": "failed_quality_table", "c-0-i": "failed_quality_table"}
    assert result.details == {"b-0-i": "mask_number", "c-0-i": "abdominal_xray"}
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has none of the CSVs mask_number, abdominal_xray, window, inclusion: add"):
        check_inputs(options(manifest=manifest, chexstruct=str(tmp_path / "empty")))
    assert len(source_files(options(manifest=manifest))) == 1


# ----------------------------------------------------------------------------------------- bad input


def test_damaged_files_lose_nothing_from_cohort_to_frames(tmp_path, xray):
    """Each of 280 damaged or garbage files becomes a frame, or one row with a reason in cohort or frames."""
    rng = random.Random(11)
    sources = [xray, *(encoded(dataset(stored_values(picture(200, 180), 12, False), 12), s) for s in LOSSLESS[3:])]
    kinds = ["cut", "bits", "header", "header", "noise"]
    rows = []
    for number in range(280):
        data = damaged(sources[number % len(sources)], kinds[number % len(kinds)], rng)
        (tmp_path / f"{number}.dcm").write_bytes(data)
        rows.append((f"p{number % 40}", f"s{number // 2}-{number % 40}", f"i{number:03d}", f"{number}.dcm", ""))
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows))
    result.check_conserved(280)
    ends = dict(result.reasons)
    framed = 0
    for name, path in result.paths.items():
        reasons = run_frames(path, tmp_path / f"{name}.h5")
        assert not set(reasons) & set(ends)
        ends |= reasons
        with Shard(tmp_path / f"{name}.h5") as shard:
            assert not set(shard.ids) & set(ends)
            framed += len(shard)
    assert len(ends) + framed == 280
    assert framed > 0
    assert {"not_dicom", "undecodable"} <= set(ends.values()) <= REASONS.keys()
