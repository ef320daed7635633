"""The embedded cohort: its pictures, its files and its truth agree."""

import hashlib
import json
import time
from collections import Counter
from pathlib import Path

import cv2
import numpy as np
import polars as pl
import pydicom
import pytest

from ils.core.geometry import fit_affine, to_frame
from ils.core.labels import (
    ANATOMY_LABELS,
    HEART,
    LESIONS,
    LOBES,
    REASONS,
    SIDES,
    SPLITS,
    ZONE_LABELS,
    kinds_under,
    zones_of,
)
from ils.core.run import UserError
from ils.core.store import Shard, read_lines
from ils.phantom import cohort, files, lesions, plan, prose, stage, wording
from ils.phantom.chest import sample

SMALL = stage.Options(subjects=6, studies=12, seed=7)
LUNG_LESIONS = [lesion for lesion in LESIONS if lesion != "cardiomegaly"]


def make(folder: Path, options: stage.Options = SMALL, threads: int = 1) -> Path:
    names = {"manifest": "manifest.csv", "truth": "truth.jsonl", "truth_masks": "truth.h5"}
    paths = {key: str(folder / name) for key, name in names.items()}
    stage.run(**paths, options=options, attrs={"stage": "phantom"}, threads=threads)
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return make(tmp_path_factory.mktemp("cohort"))


@pytest.fixture(scope="module")
def full():
    """The plan of the cohort of `make demo`: no pictures needed to count it."""
    return plan.make_plan(2026, 44, 66)


@pytest.fixture(scope="module")
def chest():
    return sample(np.random.default_rng(5), 256)


def digest(folder: Path) -> dict[str, str]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


# --- chests ---------------------------------------------------------------------------------------------------------


def test_a_chest_has_every_mask_and_zones_partition_the_lungs(chest):
    assert chest.image.dtype == np.float32
    assert 0.0 <= chest.image.min() < 0.1 < 0.8 < chest.image.max() <= 1.0
    assert set(chest.masks) == {*ANATOMY_LABELS, "cardiomediastinum"}
    for side in SIDES:
        lung = chest.masks[f"{side} lung"]
        assert np.array_equal(sum(chest.masks[zone].astype(int) for zone in zones_of(side)), lung.astype(int))
        lobes = [chest.masks[lobe] for lobe in LOBES if lobe.endswith(side)]
        assert np.array_equal(np.logical_or.reduce(lobes), lung)
    assert (chest.masks[HEART] <= chest.masks["cardiomediastinum"]).all()


def test_right_is_on_the_left_of_the_picture_and_the_left_lung_goes_behind_the_heart(chest):
    centre = {name: np.nonzero(mask)[1].mean() for name, mask in chest.masks.items()}
    assert centre["right lung"] < chest.midline < centre["left lung"]
    assert centre[HEART] > chest.midline
    behind = (chest.masks["left lung"] & chest.masks["cardiomediastinum"]).sum() / chest.masks[
        "cardiomediastinum"
    ].sum()
    assert 0.14 <= behind <= 0.61


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", [(512, 640), (600, 480)])
def test_lungs_lie_whole_in_the_picture_whatever_its_shape(seed, shape):
    masks = sample(np.random.default_rng(seed), shape, ap=bool(seed % 2)).masks
    lungs = masks["right lung"] | masks["left lung"]
    assert lungs.shape == shape
    rim = np.concatenate([lungs[0], lungs[-1], lungs[:, 0], lungs[:, -1]])
    assert not rim.any()


@pytest.mark.parametrize("large", [False, True])
def test_cardiothoracic_ratio_is_what_the_masks_say(large):
    for seed in range(8):
        chest = sample(np.random.default_rng(seed), 512, cardiomegaly=large)
        widest = np.ptp(np.nonzero(chest.masks[HEART].any(axis=0))[0]) + 1
        lungs = np.nonzero((chest.masks["right lung"] | chest.masks["left lung"]).any(axis=0))[0]
        assert widest / (np.ptp(lungs) + 1) == pytest.approx(chest.ctr, abs=0.02)
        assert (chest.ctr > 0.54) if large else (chest.ctr <= 0.45)


def test_tissue_has_the_order_of_brightness_of_a_real_film():
    for seed in range(6):
        chest = sample(np.random.default_rng(seed), 512)
        lungs = (chest.masks["right lung"] | chest.masks["left lung"]) & ~chest.masks["cardiomediastinum"]
        below = np.zeros_like(lungs)
        below[np.nonzero(lungs.any(axis=1))[0].max() + 5 :, 200:300] = True
        lung, heart = np.median(chest.image[lungs]), np.median(chest.image[chest.masks[HEART]])
        assert lung + 0.15 < heart
        assert lung + 0.15 < np.median(chest.image[below])
        assert np.median(chest.image[:20, :20]) < lung + 0.1  # air beside the neck


# --- lesions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lesion", lesions.PAINTABLE)
def test_painting_brightens_inside_its_mask_and_changes_nothing_far_outside(chest, lesion):
    region = chest.masks["right lung"] | chest.masks["left lung"]
    near = cv2.dilate(region.astype(np.uint8), np.ones((17, 17), np.uint8)) > 0
    for seed in range(8):
        new, mask = lesions.paint(chest.image, lesion, region, np.random.default_rng(seed), 1.0, midline=chest.midline)
        assert new.dtype == np.float32
        assert mask.dtype == bool
        assert mask.any()
        assert (mask <= region).all()
        change = new - chest.image
        assert (change >= -1e-6).all()
        assert np.abs(change[~near]).max() == 0
        assert change[mask].mean() > 2 * change[region & ~mask].mean()
        assert change[mask].mean() > 0.02
        assert new.max() <= 1.0


def test_painting_is_a_function_of_its_generator_and_leaves_its_input_alone(chest):
    before = chest.image.copy()
    first, again, other = (
        lesions.paint(chest.image, "opacity", chest.masks["left lung"], np.random.default_rng(seed))
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first[0], again[0])
    assert np.array_equal(first[1], again[1])
    assert not np.array_equal(first[1], other[1])
    assert np.array_equal(chest.image, before)


def test_strength_makes_a_lesion_denser(chest):
    change = [
        (
            lesions.paint(chest.image, "consolidation", chest.masks["left lung"], np.random.default_rng(3), s)[0]
            - chest.image
        ).sum()
        for s in (0.4, 0.8, 1.2)
    ]
    assert 0 < change[0] < change[1] < change[2]


def test_an_effusion_fills_from_below_and_climbs_at_the_side(chest):
    for seed in range(10):
        _, mask = lesions.paint(chest.image, "effusion", chest.masks["right lung"], np.random.default_rng(seed))
        rows = np.nonzero(mask.any(axis=1))[0]
        assert rows.max() >= np.nonzero(chest.masks["right lung"].any(axis=1))[0].max() - 4
        columns = np.nonzero(mask.any(axis=0))[0]
        lateral = columns[: max(3, len(columns) // 4)]
        tops = [np.argmax(mask[:, column]) for column in lateral]
        assert np.mean(tops) <= np.mean([np.argmax(mask[:, column]) for column in columns]) + 1


def test_edema_is_on_both_sides_and_others_on_one(chest):
    both = chest.masks["right lung"] | chest.masks["left lung"]
    for seed in range(5):
        _, edema = lesions.paint(chest.image, "edema", both, np.random.default_rng(seed), midline=chest.midline)
        assert all((edema & chest.masks[f"{side} lung"]).any() for side in SIDES)
        _, focal = lesions.paint(chest.image, "opacity", both, np.random.default_rng(seed), midline=chest.midline)
        assert sum((focal & chest.masks[f"{side} lung"]).any() for side in SIDES) == 1


def test_an_empty_region_is_left_alone_and_an_unknown_lesion_refused(chest):
    empty = np.zeros_like(chest.masks[HEART])
    new, mask = lesions.paint(chest.image, "opacity", empty, np.random.default_rng(0))
    assert np.array_equal(new, chest.image)
    assert not mask.any()
    with pytest.raises(ValueError, match="cardiomegaly"):
        lesions.paint(chest.image, "cardiomegaly", empty, np.random.default_rng(0))


@pytest.mark.parametrize("shape", [(37, 61), (8, 8), (300, 180)])
def test_painting_takes_any_shape_and_tiny_regions(shape):
    region = np.zeros(shape, bool)
    region[2:-2, 2:-2] = True
    for lesion in lesions.PAINTABLE:
        new, mask = lesions.paint(np.full(shape, 0.3, np.float32), lesion, region, np.random.default_rng(1))
        assert new.shape == mask.shape == shape
        assert np.isfinite(new).all()


# --- reports --------------------------------------------------------------------------------------------------------


def test_places_name_only_zone_labels():
    for place in wording.PLACES.values():
        assert set(place.labels) <= set(ZONE_LABELS)
        assert place.adjectives
        assert place.nouns
    used = {place for recipe in plan.RECIPES for _, places in recipe for place in places}
    assert used <= wording.PLACES.keys()


def test_every_template_can_be_filled_and_says_its_side():
    rng = np.random.default_rng(0)
    for target in (*LESIONS, "nodule", "scar"):
        for place in wording.PLACES if target not in ("cardiomegaly", "edema") else ("heart",):
            if target == "effusion" and place not in plan.BASES:
                continue
            for hedge in ("definite", "strong", "weak"):
                for linked in {False, target in ("pneumonia", "atelectasis", "edema")}:
                    text = prose.describe(prose.Finding(target, place, hedge, linked), rng)
                    assert "{" not in text
                    assert text[0].isupper()
                    assert text.endswith(".")


def test_denials_never_contradict_the_findings():
    for seed in range(300):
        rng = np.random.default_rng(seed)
        targets = {LESIONS[i] for i in rng.choice(7, int(rng.integers(0, 4)), replace=False)}
        denied = prose.deniable(targets, rng)
        assert not targets & set(denied)
        for lesion in denied:
            under = set(kinds_under(lesion)) & targets
            assert under <= ({"atelectasis", "edema"} if lesion == "consolidation" else set())


@pytest.mark.parametrize("layout", prose.LAYOUTS)
def test_the_section_that_counts_is_the_one_that_is_promised(layout):
    headers = {"findings": "\n FINDINGS: ", "impression": "\n IMPRESSION: "}
    for seed in range(20):
        finding = prose.Finding("pneumonia", "left lower lobe", "strong", linked=True)
        report = prose.write_report([finding], np.random.default_rng(seed), layout=layout, devices=1)
        assert report.section == layout
        for name, header in headers.items():
            expected = {"findings": ("findings", "impression"), "impression": ("impression",), "last_paragraph": ()}
            assert (header in report.text) == (name in expected[layout])
        start = report.text.index(headers[layout]) if layout in headers else report.text.rindex("\n \n")
        body = " ".join(report.text[start:].split())
        assert report.findings[0]["sentence"] in body
        assert report.findings[0]["entity"] == "opacity"
        assert report.findings[0]["target"] == "pneumonia"
        assert report.findings[0]["certainty"] == "tentative"
        assert all(any(term in body.lower() for term in wording.NEGATABLE[lesion]) for lesion in report.negatives)
        assert all(line.startswith(" ") for line in report.text.splitlines())


def test_an_unknown_layout_is_refused():
    with pytest.raises(ValueError, match="addendum"):
        prose.write_report([], np.random.default_rng(0), layout="addendum")


# --- the plan -------------------------------------------------------------------------------------------------------


def usable(studies):
    return [s for s in studies if not s.report and any(not image.fault for image in s.images)]


def test_the_full_cohort_holds_what_it_should(full):
    assert len(full) == 66
    assert len({study.subject_id for study in full}) == 44
    good = usable(full)
    assert len(good) >= 58
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


def test_two_runs_give_the_same_bytes_for_any_number_of_threads(small, tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "stale.dcm").write_bytes(b"left by an earlier run")
    assert digest(make(tmp_path, threads=3)) == digest(small)


def test_another_seed_gives_another_cohort(small, tmp_path):
    other = make(tmp_path, stage.Options(6, 6, seed=8))
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
    """Decode a file as a viewer would: rescaled, MONOCHROME1 inverted, float64."""
    pixels = ds.pixel_array.astype(np.float64) * float(ds.get("RescaleSlope", 1)) + float(ds.get("RescaleIntercept", 0))
    return -pixels if ds.PhotometricInterpretation == "MONOCHROME1" else pixels


@pytest.mark.parametrize("name", files.DICOM_ENCODINGS)
def test_every_encoding_decodes_to_the_intended_picture(name, tmp_path):
    encoding = files.DICOM_ENCODINGS[name]
    image = sample(np.random.default_rng(1), (277, 333)).image  # odd sizes upset some codecs
    ids = {"image_id": "i", "study_id": "s", "subject_id": "p", "view": "PA", "acquired": "2199-01-02T03:04:05"}
    files.dicom(image, name, **ids).save_as(tmp_path / "a.dcm", enforce_file_format=True)
    ds = pydicom.dcmread(tmp_path / "a.dcm")
    assert ds.file_meta.TransferSyntaxUID == encoding.syntax
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
    ds = files.dicom(cohort.lateral(0, "i", 128), "explicit_12", **ids)
    files.write_broken(tmp_path / "a.dcm", ds, "lateral")
    assert pydicom.dcmread(tmp_path / "a.dcm").ViewPosition == "LL"


def test_good_files_show_their_truth_and_broken_ones_do_not_decode(small):
    paths = {
        row["image_id"]: small / row["image_path"] for row in pl.read_csv(small / "manifest.csv").iter_rows(named=True)
    }
    with Shard(small / "truth.h5") as masks:
        assert masks.labels() == list(cohort.TRUTH_LABELS)
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


def test_fewer_studies_than_subjects_is_a_users_mistake(tmp_path):
    with pytest.raises(UserError, match=r"phantom\.studies is 5"):
        make(tmp_path, stage.Options(6, 5, 0))


def test_truth_is_json_with_the_promised_keys(small):
    row = json.loads((small / "truth.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert {"study_id", "subject_id", "split", "section_name", "findings", "negatives", "shown", "images"} <= row.keys()
