"""The embedded cohort: its images, its files and its truth agree."""

import hashlib
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pydicom
import pytest

from cxr.base.exclusions import REASONS
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import HEART, LESIONS, SPLITS, ZONE_LABELS
from cxr.geometry.affine import fit_affine, to_frame
from cxr.imaging.phantom import files, make_phantom, plan, prose
from cxr.imaging.phantom.chest import draw_chest
from cxr.imaging.phantom.settings import PhantomSettings
from cxr.workflow.settings import Settings

LUNG_LESIONS = [lesion for lesion in LESIONS if lesion != "cardiomegaly"]
SMALL = PhantomSettings(subjects=6, studies=12)


def make(folder: Path, options: PhantomSettings = SMALL, seed: int = 7, threads: int = 1) -> Path:
    names = {"manifest": "manifest.csv", "truth": "truth.jsonl", "truth_masks": "truth.h5"}
    paths = {key: str(folder / name) for key, name in names.items()}
    make_phantom.run(**paths, options=options, seed=seed, attrs={"stage": "phantom"}, threads=threads)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make(tmp_path_factory.mktemp("cohort"))


@pytest.fixture(scope="module")
def full():
    """The plan of the cohort of `make demo`; counting it needs no images."""
    chosen = Settings()
    return plan.make_plan(chosen.seed, chosen.phantom.subjects, chosen.phantom.studies)


def digest(folder: Path) -> dict[str, str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


# --- the plan -------------------------------------------------------------------------------------------------------


def usable(studies):
    return [s for s in studies if not s.report and any(not image.fault for image in s.images)]


def test_the_full_cohort_holds_what_it_should(full):
    good = usable(full)
    assert len(good) >= 60
    assert len({study.subject_id for study in good}) >= 40
    seen = Counter(target for study in good for target in {finding.target for finding in study.findings})
    assert all(seen[lesion] >= 8 for lesion in LESIONS), seen
    assert sum(not {f.target for f in study.findings} & set(LESIONS) for study in good) >= 8
    assert {image.encoding for study in full for image in study.images} == set(plan.ENCODINGS)
    faults = Counter(image.fault for study in full for image in study.images if image.fault)
    assert set(faults) == {*plan.BROKEN_EXTRA, *plan.BROKEN_ALONE}
    assert {study.report for study in full} == {"", *plan.REPORTLESS}
    assert sum(len([image for image in study.images if not image.fault]) > 1 for study in good) >= 5
    assert {study.layout for study in full} == set(prose.LAYOUTS)
    findings = [finding for study in good for finding in study.findings]
    assert {finding.hedge for finding in findings} == {"definite", "strong", "weak"}
    assert any(finding.linked for finding in findings)
    assert any(finding.hard for finding in findings)


@pytest.mark.parametrize(("subjects", "studies"), [(6, 6), (6, 9), (6, 12), (10, 30)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_slice_still_holds_every_lesion_split_and_a_fault(subjects, studies, seed):
    small = plan.make_plan(seed, subjects, studies)
    assert len(small) == studies
    assert {study.split for study in small} == set(SPLITS)
    seen = {finding.target for study in usable(small) for finding in study.findings}
    assert seen >= set(LESIONS)
    assert sum(bool(image.fault) for study in small for image in study.images) >= 2


@pytest.mark.parametrize("seed", range(5))
def test_no_subject_is_in_two_splits(seed):
    of = {}
    for study in plan.make_plan(seed, 44, 66):
        assert of.setdefault(study.subject_id, study.split) == study.split
    counts = Counter(of.values())
    assert counts == {"train": 26, "validate": 9, "test": 9}


# --- the files ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_runs_give_the_same_bytes_for_any_number_of_threads(small, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "stale.dcm").write_bytes(b"left by an earlier run")
    assert digest(make(tmp_path, threads=3)) == digest(small)


def test_another_seed_gives_another_cohort(small, tmp_path):
    other = make(tmp_path, PhantomSettings(subjects=6, studies=6), seed=8)
    assert (other / "truth.jsonl").read_bytes() != (small / "truth.jsonl").read_bytes()


def test_the_manifest_names_every_file_and_its_split(small):
    table = pl.read_csv(small / "manifest.csv")
    assert table.columns[:4] == ["subject_id", "study_id", "image_id", "image_path"]
    assert table["image_id"].is_unique().all()
    truth = {row["study_id"]: row for row in read_lines(small / "truth.jsonl")}
    verdicts = {image["image_id"]: image["verdict"] for row in truth.values() for image in row["images"]}
    for row in table.iter_rows(named=True):
        path = small / row["image_path"]
        assert path.exists() == (verdicts[row["image_id"]] != "missing_file")
        assert row["split"] == truth[row["study_id"]]["split"]
        assert row["report_path"] is None or (small / row["report_path"]).exists()
    assert set(verdicts.values()) - {"accept"} <= REASONS.keys()
    listed = {str(small / path) for path in table["image_path"]}
    assert {str(path) for path in (small / "images").iterdir()} <= listed


def shown(ds: pydicom.Dataset) -> np.ndarray:
    """Decode a file like a viewer: rescaled, MONOCHROME1 inverted, float64."""
    pixels = ds.pixel_array.astype(np.float64) * float(ds.get("RescaleSlope", 1)) + float(ds.get("RescaleIntercept", 0))
    return -pixels if ds.PhotometricInterpretation == "MONOCHROME1" else pixels


@pytest.mark.parametrize("name", files.DICOM_ENCODINGS)
def test_every_encoding_decodes_to_the_intended_picture(name, tmp_path):
    encoding = files.DICOM_ENCODINGS[name]
    image = draw_chest(np.random.default_rng(1), (277, 333)).image  # odd sizes upset some codecs
    ids = {"image_id": "i", "study_id": "s", "subject_id": "p", "view": "PA", "acquired": "2199-01-02T03:04:05"}
    files.make_dicom(image, name, **ids).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    ds = pydicom.dcmread(tmp_path / "a.dcm")
    assert ds.file_meta.TransferSyntaxUID == getattr(pydicom.uid, encoding.syntax)
    assert (ds.BitsStored, ds.PixelRepresentation) == (encoding.bits, int(encoding.signed))
    stored = files.stored_values(image, encoding)
    step = encoding.tolerance * (2**encoding.bits - 1)
    assert np.abs(ds.pixel_array.astype(np.int64) - stored.astype(np.int64)).max() <= step
    pixels = shown(ds)
    inner = slice(files.PADDED_ROWS, -files.PADDED_ROWS) if encoding.padded else slice(None)
    assert np.corrcoef(pixels[inner].ravel(), image[inner].ravel())[0, 1] > 0.999


@pytest.mark.parametrize("number", range(12))
def test_a_lateral_says_so_wherever_the_view_of_its_id_would_stand(number, tmp_path):
    ids = {
        "image_id": f"i{number}",
        "study_id": "s",
        "subject_id": "p",
        "view": "LL",
        "acquired": "2199-01-02T03:04:05",
    }
    ds = files.make_dicom(make_phantom.draw_lateral(0, "i", 128), "explicit_12", **ids)
    files.write_broken(tmp_path / "a.dcm", ds, "lateral")
    assert pydicom.dcmread(tmp_path / "a.dcm").ViewPosition == "LL"


def test_good_files_show_their_truth_and_broken_ones_do_not_decode(small):
    paths = {
        row["image_id"]: small / row["image_path"] for row in pl.read_csv(small / "manifest.csv").iter_rows(named=True)
    }
    with Shard(small / "truth.h5") as masks:
        assert masks.labels() == list(make_phantom.TRUTH_LABELS)
        accepted = []
        for row in read_lines(small / "truth.jsonl"):
            for image in row["images"]:
                path = paths[image["image_id"]]
                if image["verdict"] == "undecodable":
                    with pytest.raises((ValueError, EOFError)):
                        _ = pydicom.dcmread(path).pixel_array
                if image["verdict"] != "accept":
                    continue
                accepted.append(image["image_id"])
                pixels = (
                    shown(pydicom.dcmread(path))
                    if path.suffix == ".dcm"
                    else cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
                )
                assert list(pixels.shape) == image["shape"]
                frame = to_frame(pixels.astype(np.float32), fit_affine(pixels.shape, 512, "pad"), 512)
                truth = masks.masks(image["image_id"])
                lungs = (truth["right lung"] | truth["left lung"]) & ~truth["cardiomediastinum"]
                sick = np.logical_or.reduce([truth[lesion] for lesion in LESIONS])
                heart = truth[HEART] & ~sick if (truth[HEART] & ~sick).sum() > 500 else truth[HEART]
                assert np.median(frame[lungs & ~sick]) < np.median(frame[heart])
        assert sorted(masks.ids) == sorted(accepted)


def test_some_lesions_are_misread_and_the_truth_knows():
    studies = plan.make_plan(2026, 48, 72)
    errors = [(study, number, lesion) for study in studies for number, lesion in study.misread]
    assert 3 <= len(errors) <= 16
    for study, number, lesion in errors:
        assert lesion != study.findings[number].target
        assert study.painted[number] == lesion
    assert not any(study.misread for study in plan.make_plan(2026, 6, 9))


def test_lesions_of_the_lungs_lie_in_the_lungs_and_in_their_zones(small):
    with Shard(small / "truth.h5") as masks:
        for row in read_lines(small / "truth.jsonl"):
            for image in row["images"]:
                if image["verdict"] != "accept":
                    continue
                truth = masks.masks(image["image_id"])
                lungs = truth["right lung"] | truth["left lung"]
                for lesion in LUNG_LESIONS:
                    assert (truth[lesion] & ~lungs).sum() <= 0.01 * max(100, truth[lesion].sum())
                for finding in row["findings"]:
                    if finding["painted"] and finding["target"] in LESIONS:
                        zone = [truth[label] for label in finding["labels"]] or [lungs | truth[HEART]]
                        assert (truth[finding["painted_as"]] & np.logical_or.reduce(zone)).any()
                assert np.array_equal(truth["cardiomegaly"], truth[HEART]) or not truth["cardiomegaly"].any()
                for lesion in LESIONS:
                    assert truth[lesion].any() == (lesion in row["shown"])


def test_the_truth_of_the_reports_is_in_the_reports(small):
    reports = {row["study_id"]: row["report_path"] for row in pl.read_csv(small / "manifest.csv").iter_rows(named=True)}
    lines = list(read_lines(small / "truth.jsonl"))
    assert [row["study_id"] for row in lines] == sorted(reports)
    for row in lines:
        if row["report_fault"]:
            assert row["findings"] == row["negatives"] == []
            continue
        text = " ".join((small / reports[row["study_id"]]).read_text(encoding="utf-8").split())
        for finding in row["findings"]:
            assert finding["sentence"] in text
            assert finding["target"] in (*LESIONS, "nodule", "scar")
            assert set(finding["labels"]) <= set(ZONE_LABELS)
        assert not set(row["negatives"]) & {finding["target"] for finding in row["findings"]}


def test_headers_hold_no_real_person_and_no_date_of_today(small):
    for path in (small / "images").glob("*.dcm"):
        data = path.read_bytes()
        assert time.strftime("%Y%m%d").encode() not in data
        if data[128:132] == b"DICM":
            ds = pydicom.dcmread(path, stop_before_pixels=True, force=True)
            assert str(ds.PatientName) == "SYNTHETIC^PHANTOM"
            assert ds.PatientID.startswith("SYN")


def test_truth_is_json_with_the_promised_keys(small):
    row = json.loads((small / "truth.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert {"study_id", "subject_id", "split", "section_name", "findings", "negatives", "shown", "images"} <= row.keys()


@pytest.mark.slow
def test_further_healthy_patients_change_no_other_file(small, tmp_path):
    folder = make(tmp_path / "more", replace(SMALL, healthy=5))
    for path in (small / "images").iterdir():
        assert (folder / "images" / path.name).read_bytes() == path.read_bytes()
    rows, before = (read_table(each / "manifest.csv").to_dicts() for each in (folder, small))
    assert rows[: len(before)] == before
    more = rows[len(before) :]
    assert [row["split"] for row in more] == ["train", "validate", "train", "test", "train"]
    assert len({row["subject_id"] for row in rows}) == 6 + 5
    lines = {line["study_id"]: line for line in read_lines(folder / "truth.jsonl")}
    for row in more:
        line = lines[row["study_id"]]
        assert (line["findings"], line["shown"], line["report_fault"]) == ([], [], None)
        assert [(image["view"], image["verdict"]) for image in line["images"]] == [("PA", "accept")]
        assert (folder / row["image_path"]).is_file()
