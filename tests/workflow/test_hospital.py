"""The cohort of a hospital, as it is exported, through all four systems."""

from collections import Counter

import pytest

from cohort_runs import run_cohort, run_frames
from cxr.base.tables import read_table
from cxr.language.reports.read_reports import ReportsOptions, run_shard
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from hospital import Hospital, build_hospital


@pytest.fixture(scope="module")
def hospital(shared, tmp_path_factory) -> Hospital:
    return build_hospital(tmp_path_factory.mktemp("hospital") / "Klinik Süd", shared)


@pytest.fixture(scope="module")
def cohort(hospital, tmp_path_factory):
    return run_cohort(tmp_path_factory.mktemp("cohort"), manifest=str(hospital.folder / "manifest.csv"), shards=1)


def test_the_cohort_is_the_same_bytes_each_time(hospital, shared, tmp_path):
    again = build_hospital(tmp_path / "again", shared)
    files = sorted(path.relative_to(hospital.folder) for path in hospital.folder.rglob("*") if path.is_file())
    assert len(files) == 1 + 1 + 60 + 46  # settings, manifest, radiographs of which one is missing, reports likewise
    for path in files:
        assert (hospital.folder / path).read_bytes() == (again.folder / path).read_bytes(), path


def test_every_row_is_accepted_or_has_its_reason(hospital, cohort):
    cohort.check_conserved(hospital.rows)
    assert hospital.rows == 61
    assert cohort.reasons == hospital.excluded["cohort"]
    assert Counter(cohort.reasons.values()) == {
        "not_frontal": 5, "unknown_view": 1, "wrong_modality": 1, "wrong_body_part": 1, "missing_file": 1,
    }  # fmt: skip
    assert cohort.accepted["study_id"].n_unique() == 47
    assert cohort.accepted["subject_id"].n_unique() == 40


def test_every_report_is_read_or_has_its_reason(hospital, cohort, tmp_path):
    options = ReportsOptions(**stage_options(Settings())["reports"])
    paths = {"output": str(tmp_path / "o.jsonl"), "excluded": str(tmp_path / "e.parquet")}
    run_shard(cohort=str(cohort.paths["00"]), **paths, options=options, attrs={})
    excluded = dict(read_table(paths["excluded"]).select("image_id", "reason").iter_rows())
    first_images = {image: reason for image, reason in excluded.items() if image in hospital.excluded["reports"]}
    assert first_images == hospital.excluded["reports"]
    assert {image.split("_")[0] for image in excluded} == set(hospital.excluded["reports"])
    assert len((tmp_path / "o.jsonl").read_text(encoding="utf-8").splitlines()) == 44


@pytest.mark.xfail(reason="days written dd.mm.yyyy do not sort, so a later image is chosen of two studies", strict=True)
def test_each_study_has_the_frame_of_its_first_image(hospital, cohort, tmp_path):
    reasons = run_frames(cohort.paths["00"], tmp_path / "frames.h5")
    assert reasons == hospital.excluded["frames"]
