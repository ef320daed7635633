"""The cohort of a hospital, as it is exported, through all four systems."""

import base64
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import cv2
import h5py
import numpy as np
import polars as pl
import pytest

from cohort_runs import run_cohort, run_frames
from conftest import snakemake
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import SPLITS
from cxr.language.reports.read_reports import ReportsOptions, run_shard
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings
from hospital import Hospital, build_hospital
from planted_texts import IN_PAGE, find_texts


@pytest.fixture(scope="module")
def hospital(shared, tmp_path_factory) -> Hospital:
    return build_hospital(tmp_path_factory.mktemp("hospital") / "Klinik Süd", shared)


@pytest.fixture(scope="module")
def cohort(hospital, tmp_path_factory):
    return run_cohort(tmp_path_factory.mktemp("cohort"), manifest=str(hospital.folder / "manifest.csv"), shards=1)


@pytest.mark.slow
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


def test_each_study_has_the_frame_of_its_first_image(hospital, cohort, tmp_path):
    reasons = run_frames(cohort.paths["00"], tmp_path / "frames.h5")
    assert reasons == hospital.excluded["frames"]


# ------------------------------------------------------------------------------------------- all four systems

SYSTEMS = {"ils": (), "medground": ("medground",), "radvlm": ("radvlm",), "semisyn": ("semisyn",)}
"""{system: its target}; without one the workflow makes ILS's dataset and the page."""
LINES = {"ils": "dataset/default", "medground": "medground/dataset", "radvlm": "radvlm/instructions/all"}
"""Folders below results/ with train.jsonl, validate.jsonl and test.jsonl."""
OWN_TABLES = ("cohort", "reports")
"""Folders below results/ that are the hospital's own tables and reports."""


@dataclass(frozen=True)
class Run:
    """What the four systems made of the hospital's cohort: {system: exit status} and {system: what was printed}."""

    hospital: Hospital
    statuses: dict[str, int]
    printed: dict[str, str]
    plan: str

    @property
    def results(self) -> Path:
        return self.hospital.folder / "results"


@pytest.fixture(scope="module")
def run(hospital) -> Run:
    """Run the four systems one after the other on the example's settings, each planned before the first begins."""
    plan = snakemake(hospital.folder, "plan", check=False)
    statuses, printed = {}, {}
    for system, targets in SYSTEMS.items():
        done = snakemake(hospital.folder, *targets, check=False)
        statuses[system], printed[system] = done.returncode, done.stdout + done.stderr
    return Run(hospital, statuses, printed, plan.stdout + plan.stderr)


def split_subjects(folder: Path) -> dict[str, set[str]]:
    """Return {split: its subjects} of a system's lines."""
    return {split: {line["subject_id"] for line in read_lines(folder / f"{split}.jsonl")} for split in SPLITS}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_system_ends(run, system):
    assert run.statuses[system] == 0, run.printed[system][-3000:]
    assert "Traceback" not in run.printed[system]


@pytest.mark.slow
@pytest.mark.parametrize("system", LINES)
def test_each_split_has_lines_and_no_subject_is_in_two(run, system):
    subjects = split_subjects(run.results / LINES[system])
    assert all(subjects.values()), {split: len(members) for split, members in subjects.items()}
    assert sum(map(len, subjects.values())) == len(set.union(*subjects.values()))


@pytest.mark.slow
def test_a_subject_is_in_the_same_split_of_every_system(run):
    of_cohort = dict(read_table(run.results / "cohort/images.parquet").select("subject_id", "split").iter_rows())
    for folder in LINES.values():
        for split, subjects in split_subjects(run.results / folder).items():
            assert {of_cohort[subject] for subject in subjects} <= {split}, folder


@pytest.mark.slow
def test_medgrounds_lines_are_of_the_hospital_alone(run):
    folder = run.results / "medground/dataset"
    assert {line["source"] for split in SPLITS for line in read_lines(folder / f"{split}.jsonl")} == {"ils"}


@pytest.mark.slow
def test_the_pages_are_there(run):
    for name in ("index.html", "radvlm.html"):
        page = (run.results / name).read_text(encoding="utf-8")
        without_pictures = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
        assert "NaN" not in without_pictures
        assert len(without_pictures) > 20_000


@pytest.mark.slow
def test_an_edited_image_has_a_healthy_one_that_is_not_used_too_often(run):
    plan = read_table(run.results / "semisyn/placement/plan.parquet")
    healthy = read_table(run.results / "semisyn/healthy/images.parquet")
    assert 3 <= healthy.height <= 15
    uses = Counter(plan["image_id"])
    assert 0 < max(uses.values()) <= 200, uses.most_common(3)


@pytest.mark.slow
def test_no_private_text_is_in_any_byte_of_the_results(run):
    texts = (*run.hospital.private_texts, *run.hospital.markup)
    hits = find_texts(run.results, texts, *OWN_TABLES)
    assert hits == []


@pytest.mark.slow
def test_the_search_finds_the_private_texts_where_they_may_be(run):
    """The hospital's own tables hold them, so a search that finds none there would prove nothing."""
    found = {text for _, text in find_texts(run.results / "cohort", run.hospital.private_texts)}
    assert {"Müller", "Krenzler"} <= found


@pytest.mark.slow
def test_no_private_text_is_in_a_log(run):
    assert find_texts(run.hospital.folder / "logs", run.hospital.private_texts) == []
    printed = "\n".join(run.printed.values()).casefold()
    assert [text for text in run.hospital.private_texts if text.casefold() in printed] == []


def images_of(results: Path, image_ids: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    """Yield (where, grey pixels) of each distinct image in which the results may show one of these images.

    Rows of shards are chosen by their id; files, and images inside pages, by a size at which a text can be legible.
    """
    seen = set()
    for path in sorted(results.rglob("*")):
        for place, pixels in _images_in(path, image_ids):
            digest = pixels.tobytes()
            if min(pixels.shape) >= 200 and digest not in seen:
                seen.add(digest)
                yield place, pixels


def _images_in(path: Path, image_ids: Iterable[str]) -> Iterator[tuple[str, np.ndarray]]:
    if path.suffix == ".h5":
        with h5py.File(path, "r", locking=False) as file:
            fields = [name for name in ("image", "picture") if name in file and "image_id" in file]
            for row, row_id in enumerate(file["image_id"].asstr()[:] if fields else ()):
                if row_id in image_ids:
                    yield from ((f"{path}, {row_id}", _grey(file[field][row])) for field in fields)
    elif path.suffix in (".png", ".jpg", ".jpeg"):
        yield str(path), cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
    elif path.suffix == ".html":
        for number, coded in enumerate(IN_PAGE.findall(path.read_bytes())):
            pixels = cv2.imdecode(np.frombuffer(base64.b64decode(coded), np.uint8), cv2.IMREAD_GRAYSCALE)
            if pixels is not None:
                yield f"{path}, image {number}", pixels


def _grey(pixels: np.ndarray) -> np.ndarray:
    return pixels if pixels.ndim == 2 else pixels[..., 0]


@pytest.mark.slow
def test_no_burned_in_name_is_legible(run):
    recognizer = pytest.importorskip("rapidocr", reason="no OCR: rapidocr is not installed").RapidOCR()
    words = {word for text in run.hospital.burned_in.values() for word in text.split()}
    legible = []
    for place, pixels in images_of(run.results, run.hospital.burned_in):
        found = recognizer(cv2.resize(pixels, None, fx=2, fy=2, interpolation=cv2.INTER_CUBIC))
        read = " ".join(found.txts or ()).upper()
        legible += [(place, word) for word in words if word in read]
    assert legible == []


# ------------------------------------------------------------------------------------------------ the plan


def planned_numbers(plan: str) -> dict[str, list[float]]:
    """Return {title: all, train, validate, test} of the rows of a plan that have four numbers."""
    rows = re.findall(r"^ +(\S.*?) {2,}([\d,]+) +([\d,]+) +([\d,]+) +([\d,]+)$", plan, re.MULTILINE)
    return {title: [float(number.replace(",", "")) for number in numbers] for title, *numbers in rows}


def within_a_factor_of_two(planned: float, made: float) -> bool:
    return made / 2 <= planned <= made * 2 or abs(planned - made) <= 2


@pytest.mark.slow
def test_the_plan_was_right_within_a_factor_of_two(run):
    numbers = planned_numbers(run.plan)
    cohort = read_table(run.results / "cohort/images.parquet").filter(pl.col("reason").is_null())
    subjects = Counter(split for _, split in cohort.select("subject_id", "split").unique().iter_rows())
    made = {"subjects": [subjects[split] for split in SPLITS]}
    reports = [line for path in sorted(run.results.glob("reports/*.jsonl")) for line in read_lines(path)]
    titles = {"pairs, default": "ils", "MedGround lines": "medground", "RadVLM lines, all": "radvlm"}
    for title, system in titles.items():
        folder = run.results / LINES[system]
        made[title] = [sum(1 for _ in read_lines(folder / f"{split}.jsonl")) for split in SPLITS]
    assert numbers["readable reports"][0] == pytest.approx(len(reports), abs=3)
    for title, counts in made.items():
        assert within_a_factor_of_two(numbers[title][0], sum(counts)), (title, numbers[title], counts)
    healthy = int(re.search(r"([\d,]+) healthy X-rays", run.plan)[1].replace(",", ""))
    edits = int(re.search(r"([\d,]+) edits", run.plan)[1].replace(",", ""))
    assert within_a_factor_of_two(healthy, read_table(run.results / "semisyn/healthy/images.parquet").height)
    assert within_a_factor_of_two(edits, read_table(run.results / "semisyn/placement/plan.parquet").height)
