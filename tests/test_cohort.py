"""Cohort: the right verdict on every file, every input image once, shards that stay as they are."""

import csv
import gzip
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydicom import uid
from pydicom.data import get_testdata_file
from pydicom.dataset import Dataset

from conftest import ROOT
from dicom_files import LOSSLESS, damaged, dataset, encoded, picture, stored_values
from ils.cohort.check import check_inputs, source_files
from ils.cohort.mimic import acquired_at
from ils.cohort.split import hashed_split, subject_splits
from ils.cohort.stage import Options, run
from ils.cohort.view import OTHER, view_of_code, view_of_header, view_of_text
from ils.core.labels import REASONS
from ils.core.options import stage_options
from ils.core.run import UserError
from ils.core.seeds import shard_names, shard_of
from ils.core.settings import Settings
from ils.core.store import Shard, read_table
from ils.frames.stage import Options as FramesOptions
from ils.frames.stage import run_shard

COLUMNS = ("subject_id", "study_id", "image_id", "image_path", "report_path")


def options(**changes: object) -> Options:
    defaults = stage_options(Settings())["cohort"] | {"source": "manifest", "manifest": "", "shards": 4}
    return Options(**(defaults | changes))


class Result:
    """What the stage wrote."""

    def __init__(self, folder: Path, shards: int):
        self.names = shard_names(shards)
        self.paths = {name: folder / f"{name}.parquet" for name in self.names}
        self.shards = {name: read_table(path) for name, path in self.paths.items()}
        self.accepted = pl.concat(self.shards.values())
        self.images = read_table(folder / "images.parquet")
        self.excluded = read_table(folder / "excluded.parquet")
        self.reasons = dict(self.excluded.select("image_id", "reason").iter_rows())
        self.details = dict(self.excluded.select("image_id", "detail").iter_rows())

    def check_conserved(self, count: int) -> None:
        ids = [*self.accepted["image_id"], *self.excluded["image_id"]]
        assert len(ids) == len(set(ids)) == count == self.images.height
        assert set(ids) == set(self.images["image_id"])
        told = {image: reason for image, reason in self.images.select("image_id", "reason").iter_rows() if reason}
        assert told == self.reasons
        assert set(self.reasons.values()) <= REASONS.keys()
        for name, table in self.shards.items():
            assert table["image_id"].is_sorted()
            assert all(shard_of(subject, len(self.names)) == int(name) for subject in table["subject_id"])
        assert self.accepted.group_by("subject_id").agg(pl.col("split").n_unique())["split"].max() in (1, None)


def run_cohort(folder: Path, threads: int = 2, **changes: object) -> Result:
    chosen = options(**changes)
    out = folder / "out"
    run(
        shards=[str(out / f"{name}.parquet") for name in shard_names(chosen.shards)],
        images=str(out / "images.parquet"),
        excluded=str(out / "excluded.parquet"),
        options=chosen,
        attrs={},
        threads=threads,
    )
    return Result(out, chosen.shards)


def write_csv(path: Path, header: tuple[str, ...], rows: list[tuple]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])
    return str(path)


@pytest.fixture(scope="module")
def xray() -> bytes:
    """A whole frontal chest X-ray as a DICOM file."""
    return encoded(dataset(stored_values(picture(200, 180), 12, False), 12))


def of(**tags: object) -> bytes:
    return encoded(dataset(stored_values(picture(200, 180), 8, False), **tags))


def one(folder: Path, data: bytes, name: str = "a.dcm", **changes: object) -> Result:
    """Run a manifest of one image."""
    (folder / name).write_bytes(data)
    manifest = write_csv(folder / "m.csv", COLUMNS, [("p", "s", "i", name, "")])
    return run_cohort(folder, manifest=manifest, shards=1, **changes)


# ---------------------------------------------------------------------------------------------- real files


def test_every_real_dicom_gets_its_verdict(shared, tmp_path):
    folder = shared / "data/dicom"
    with open(folder / "dicom.csv", encoding="utf-8") as file:
        truth = list(csv.DictReader(file))
    rows = [(f"p{n}", f"s{n}", row["file"], str(folder / row["file"]), "") for n, row in enumerate(truth)]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows))
    result.check_conserved(len(truth))
    verdicts = {row["file"]: "exclude" if row["file"] in result.reasons else "accept" for row in truth}
    assert verdicts == {row["file"]: row["verdict"] for row in truth}
    assert result.reasons == {
        "nih_p2_header_position_xx.dcm": "unknown_view",
        "neg_extremity_cr_mono1_j2k_lossless.dcm": "wrong_body_part",
        "neg_thorax_animal_lateral_dx_mono1.dcm": "not_frontal",
        "nih_p2_header_modality_ct.dcm": "wrong_modality",
    }
    assert set(result.accepted["view"]) == {"PA"}
    frames = {}
    for name, path in result.paths.items():
        run_frames(path, tmp_path / f"{name}.h5")
        with Shard(tmp_path / f"{name}.h5") as shard:
            frames |= {image: shard.get("image", image).astype(int) for image in shard.ids}
    assert set(frames) == set(result.accepted["image_id"])
    plain, inverted = (frames[f"rsna_cr_pa_jpegbaseline_{kind}.dcm"] for kind in ("mono2", "relabelled_mono1"))
    assert np.abs(plain + inverted - 255).max() <= 1


def run_frames(cohort: Path, output: Path) -> dict[str, str]:
    chosen = FramesOptions(**stage_options(Settings())["frames"])
    excluded = output.with_suffix(".excluded.parquet")
    run_shard(cohort=str(cohort), output=str(output), excluded=str(excluded), options=chosen, attrs={}, threads=2)
    return dict(read_table(excluded).select("image_id", "reason").iter_rows())


# ------------------------------------------------------------------------------------------------- headers


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ({}, None),
        ({"Modality": "DX"}, None),
        ({"Modality": "CT"}, "wrong_modality"),
        ({"Modality": "OT"}, "wrong_modality"),
        ({"Modality": None}, None),  # its class says CR
        ({"Modality": None, "SOPClassUID": uid.SecondaryCaptureImageStorage}, "wrong_modality"),
        ({"BodyPartExamined": ""}, None),
        ({"BodyPartExamined": "Port Chest"}, None),
        ({"BodyPartExamined": "RIBCAGE"}, None),
        ({"BodyPartExamined": "KNEE"}, "wrong_body_part"),
        ({"BodyPartExamined": "ABDOMEN"}, "wrong_body_part"),
        ({"ViewPosition": "AP"}, None),
        ({"ViewPosition": "LL"}, "not_frontal"),
        ({"ViewPosition": "LATERAL"}, "not_frontal"),
        ({"ViewPosition": "AP LLD"}, "not_frontal"),
        ({"ViewPosition": ""}, "unknown_view"),
        ({"ViewPosition": None}, "unknown_view"),
        ({"ViewPosition": None, "PatientPosition": "AP"}, None),
        ({"ViewPosition": None, "PatientPosition": "HFS"}, "unknown_view"),
        ({"ViewPosition": None, "SeriesDescription": "CHEST PA"}, None),
        ({"ViewPosition": None, "SeriesDescription": "Thorax lateral"}, "not_frontal"),
        ({"ViewPosition": None, "StudyDescription": "CHEST PA AND LAT"}, "unknown_view"),
        ({"ViewPosition": None, "PatientOrientation": ["A", "F"]}, "not_frontal"),
        ({"ViewPosition": None, "PatientOrientation": ["L", "F"]}, "unknown_view"),
        ({"Rows": 100, "PixelData": bytes(100 * 180)}, "too_small"),
    ],
)
def test_verdict_of_a_header(tmp_path, tags, reason):
    result = one(tmp_path, of(**tags))
    result.check_conserved(1)
    assert result.reasons == ({"i": reason} if reason else {})


def test_view_code_sequence():
    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = "R-10206", "SNM3", "antero-posterior"
    header = Dataset()
    header.ViewCodeSequence = [item]
    assert view_of_header(header) == ("AP", "ViewCodeSequence")
    item.CodeMeaning = ""
    assert view_of_header(header) == ("AP", "ViewCodeSequence")
    item.CodeValue, item.CodeMeaning = "R-10236", "left lateral"
    assert view_of_header(header) == (OTHER, "ViewCodeSequence")


@pytest.mark.parametrize(
    ("code", "view"),
    [("pa", "PA"), ("AP Supine", "AP"), ("POSTERO_ANTERIOR", "PA"), ("Antero-posterior", "AP"), ("P-A", "PA"),
     ("LATERAL", OTHER), ("AP AXIAL", OTHER), ("LPO", OTHER), ("XX", None), ("", None), ("FRONTAL", None),
     ("AP/PA", None)],
)  # fmt: skip
def test_view_of_a_code(code, view):
    assert view_of_code(code) == view


@pytest.mark.parametrize(
    ("text", "view"),
    [("view: PA", "PA"), ("CHEST (PORTABLE AP)", "AP"), ("XR CHEST 2 VIEWS PA/LAT", None), ("chest", None),
     ("120 ML contrast", None), ("BILATERAL RIBS AP", "AP"), ("W033 Chest LAT", OTHER), ("Thorax p.-a.", None)],
)  # fmt: skip
def test_view_of_a_description(text, view):
    assert view_of_text(text) == view


def test_unknown_view_can_be_accepted(tmp_path):
    result = one(tmp_path, of(ViewPosition=None), unknown_view="accept")
    assert result.accepted["view"].to_list() == [""]
    assert one(tmp_path, of(ViewPosition="LL"), unknown_view="accept").reasons == {"i": "not_frontal"}


@pytest.mark.parametrize("syntax", LOSSLESS, ids=lambda syntax: syntax.name)
def test_headers_of_all_encodings(tmp_path, syntax):
    data = encoded(dataset(stored_values(picture(200, 180), 12, False), 12), syntax)
    assert one(tmp_path, data).accepted.height == 1


def test_a_deflated_bomb_is_not_inflated_for_its_header(tmp_path):
    values = np.zeros((8000, 8000), np.uint16)
    data = encoded(dataset(values, 16), uid.DeflatedExplicitVRLittleEndian)
    assert len(data) < values.nbytes / 500
    assert one(tmp_path, data).accepted.height == 1


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty_file"),
        (b"hello, this is not a picture" * 20, "not_dicom"),
        (bytes(5000), "not_dicom"),
        (bytes(128) + b"DICM", "unreadable_header"),
        (bytes(128) + b"DICM" + b"\xff" * 400, "unreadable_header"),
        (b"\x89PNG\r\n\x1a\n" + bytes(60), "unreadable_header"),
        (b"\xff\xd8\xff" + bytes(60), "unreadable_header"),
    ],
)
def test_files_that_are_none(tmp_path, data, reason):
    result = one(tmp_path, data)
    result.check_conserved(1)
    assert result.reasons == {"i": reason}


def test_pictures_take_their_view_from_the_manifest(tmp_path):
    small, large = stored_values(picture(100, 300), 8, False), stored_values(picture(200, 300), 8, False)
    for name, values in (("a.png", large), ("b.jpg", large), ("c.png", small)):
        cv2.imwrite(str(tmp_path / name), values)
    header = ("view", *COLUMNS)
    rows = [
        ("PA", "p", "s1", "a", "a.png", ""),
        ("AP supine", "p", "s2", "b", "b.jpg", ""),
        ("PA", "p", "s3", "c", "c.png", ""),
        ("", "p", "s4", "d", "a.png", ""),
        ("Lateral", "p", "s5", "e", "a.png", ""),
        ("PA", "p", "s6", "f", "none.png", ""),
    ]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", header, rows))
    result.check_conserved(6)
    assert dict(result.accepted.select("image_id", "view").iter_rows()) == {"a": "PA", "b": "AP"}
    assert result.reasons == {"c": "too_small", "d": "unknown_view", "e": "not_frontal", "f": "missing_file"}


def test_files_of_other_makers(tmp_path):
    """Modalities of pydicom's own test files: none is a chest X-ray."""
    names = ("CT_small.dcm", "MR_truncated.dcm", "rtplan.dcm", "test-SR.dcm", "JPEG2000.dcm", "image_dfl.dcm")
    rows = [("p", f"s{n}", name, get_testdata_file(name), "") for n, name in enumerate(names)]
    result = run_cohort(tmp_path, manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows))
    result.check_conserved(len(names))
    assert set(result.reasons.values()) == {"wrong_modality"}


# ------------------------------------------------------------------------------------------------ manifest


def test_a_manifest_with_everything(tmp_path, xray):
    folder = tmp_path / "given"
    (folder / "images").mkdir(parents=True)
    (folder / "images/a.dcm").write_bytes(xray)
    (folder / "r.txt").write_text("FINDINGS: none")
    header = ("note", "image_path", "image_id", "study_id", "subject_id", "report_path", "findings", "impression",
              "split", "acquired", "reason", "view")  # fmt: skip
    rows = [
        ("α, β", "images/a.dcm", "i1", "s1", "p1", "r.txt", "", "", "val", "2020", "x", ""),
        (
            "",
            str(folder / "images/a.dcm"),
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
        ("", "images/a.dcm", "i3", "s1", "p1", "", "", "", "", "2018", "y", "PA"),
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
        ("q", "t", "two_subjects", "a.dcm", ""),
        ("r", "t", "two_subjects_b", "a.dcm", ""),
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


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.tuples(texts, texts, texts, texts), min_size=1, max_size=12), data=st.data())
def test_any_rows_in_any_order_are_kept_once(tmp_path_factory, rows, data):
    folder = tmp_path_factory.mktemp("rows")
    rows = [(*row, "") for row in rows]
    if not any(any(row) for row in rows):
        return
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
    with pytest.raises(UserError, match="none of the columns report_path, findings, impression"):
        check_inputs(options(manifest=path))
    for rows in ([], [("", "", "", "", "")]):
        with pytest.raises(UserError, match="has no rows"):
            check_inputs(options(manifest=write_csv(tmp_path / "m.csv", COLUMNS, rows)))
    with pytest.raises(UserError, match="twice"):
        check_inputs(options(manifest=write_csv(tmp_path / "m.csv", (*COLUMNS, "view", "view"), [("p",) * 7])))
    (tmp_path / "m.csv").write_bytes(b"subject_id,\xff\xfe\x00\n\x01\x02")
    with pytest.raises(UserError, match="UTF-8"):
        check_inputs(options(manifest=str(tmp_path / "m.csv")))
    for wrong in (str(tmp_path), str(tmp_path / "none.csv"), ""):
        with pytest.raises(UserError, match=r"cohort\.manifest"):
            check_inputs(options(manifest=wrong))
    with pytest.raises(UserError, match=r"cohort\.source is 'folder'"):
        check_inputs(options(source="folder"))


def test_a_manifest_as_spreadsheets_save_it(tmp_path, xray):
    (tmp_path / "a.dcm").write_bytes(xray)
    (tmp_path / "m.csv").write_bytes(
        b"\xef\xbb\xbfsubject_id, study_id,image_id,image_path,report_path\r\np,s,i,a.dcm,\r\n"
    )
    assert run_cohort(tmp_path, manifest=str(tmp_path / "m.csv")).accepted.height == 1
    (tmp_path / "m.tsv").write_text("\t".join(COLUMNS) + "\np\ts\ti\ta.dcm\t\n")
    assert run_cohort(tmp_path, manifest=str(tmp_path / "m.tsv")).accepted.height == 1


def test_the_check_imports_no_heavy_package():
    code = "import sys; import ils.cohort.check; print([m for m in ('numpy', 'polars', 'pydicom') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "scripts", capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# ------------------------------------------------------------------------------------------ splits, shards


def manifest_of(folder: Path, subjects: dict[str, int], xray: bytes, split: dict[str, str] | None = None) -> str:
    """Write a manifest with so many studies of one image for each subject."""
    folder.mkdir(exist_ok=True)
    (folder / "a.dcm").write_bytes(xray)
    rows = [
        (subject, f"{subject}-{n}", f"{subject}-{n}-i", "a.dcm", "", (split or {}).get(f"{subject}-{n}", ""))
        for subject, studies in subjects.items()
        for n in range(studies)
    ]
    return write_csv(folder / "m.csv", (*COLUMNS, "split"), rows)


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
    before = [hashed_split(f"p{n}", [98, 1, 1], 0) for n in range(100)]
    assert list(subject_splits([(f"p{n}", "") for n in range(100)], [98, 1, 1], 0).values()) == before


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


# ---------------------------------------------------------------------------------------- lists of the user


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
    with caplog.at_level("WARNING", "ils"):
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
    names = ["mask_number", "abdominal_xray", "window"]
    result = run_cohort(tmp_path, manifest=manifest, chexstruct=str(folder), chexstruct_tables=names)
    result.check_conserved(4)
    assert result.reasons == {"b-0-i": "failed_quality_table", "c-0-i": "failed_quality_table"}
    assert result.details == {"b-0-i": "mask_number", "c-0-i": "abdominal_xray"}
    with pytest.raises(UserError, match=r"holds no inclusion\.csv: add it or take inclusion out"):
        check_inputs(options(manifest=manifest, chexstruct=str(folder)))
    assert len(source_files(options(manifest=manifest))) == 1


# --------------------------------------------------------------------------------------------------- MIMIC


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


def test_acquisition_times_of_the_table():
    assert acquired_at("21800506", "80556.875") == "21800506080556.875000"
    assert acquired_at("21800506", "0") == "21800506000000.000000"
    assert acquired_at("21800506", "213014.531") > acquired_at("21800506", "80556.875")
    assert acquired_at("21800506", "") == "21800506"
    assert acquired_at("", "1") is None


# ----------------------------------------------------------------------------------------------- bad input


def test_damaged_files_lose_nothing_from_cohort_to_frames(tmp_path, xray):
    """280 damaged files and garbage: each ends as a frame or as one reasoned row of cohort or frames."""
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
