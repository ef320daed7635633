"""Small cohorts, splits, plans and refusals before the first job, and the ways in which the workflow is started."""

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import cv2
import numpy as np
import pytest
import yaml

from cohort_runs import Result, of, run_cohort
from conftest import ROOT, SLICE, snakemake, write_settings
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table
from cxr.base.vocabulary import SPLITS
from cxr.workflow.params import stage_options
from cxr.workflow.settings import read
from input_doors import result_or_sentence
from semisyn_jobs import Job, tables, write

HEADER = "subject_id,study_id,image_id,image_path,findings,view,split"


def cohort_of(folder: Path, studies: list[tuple[str, str]], split: dict | None = None, shards: int = 2) -> Result:
    """Run the cohort on (subject, given split) of each study. ``split``: the user's setting of it."""
    folder.mkdir(exist_ok=True)
    cv2.imwrite(str(folder / "a.png"), np.random.default_rng(0).integers(0, 255, (160, 160), np.uint8))
    rows = [f"{subject},s{n},i{n},a.png,Clear lungs.,PA,{name}" for n, (subject, name) in enumerate(studies)]
    (folder / "manifest.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    settings = {"cohort": {"source": "manifest", "manifest": str(folder / "manifest.csv")}}
    if split:
        settings["cohort"]["split"] = split
    options = stage_options(read(settings))["cohort"] | {"shards": shards}
    return run_cohort(folder, **options)


def splits_of(result: Result) -> dict[str, str]:
    """Return {subject: split}. Raises AssertionError if a subject has two."""
    splits = defaultdict(set)
    for subject, split in result.accepted.select("subject_id", "split").iter_rows():
        splits[subject].add(split)
    assert all(len(names) == 1 for names in splits.values())
    return {subject: next(iter(names)) for subject, names in splits.items()}


def people(number: int) -> list[tuple[str, str]]:
    return [(f"p{n:04}", "") for n in range(number)]


# -------------------------------------------------------------------------------------------------- splits


def test_three_subjects_fill_three_splits(tmp_path):
    assert set(splits_of(cohort_of(tmp_path, people(3))).values()) == set(SPLITS)


def test_ten_subjects_fill_three_splits(tmp_path):
    counts = Counter(splits_of(cohort_of(tmp_path, people(10))).values())
    assert set(counts) == set(SPLITS)
    assert counts["train"] >= 6


def test_a_hundred_subjects_are_split_in_eighty_ten_and_ten(tmp_path):
    counts = Counter(splits_of(cohort_of(tmp_path, people(100))).values())
    # each subject is drawn by itself: 19 of these ids are of validate
    assert counts["train"] == pytest.approx(80, abs=12)
    assert counts["validate"] == pytest.approx(10, abs=12)
    assert min(counts[name] for name in SPLITS) >= 1


def test_one_subject_trains(tmp_path):
    result, sentence = result_or_sentence(lambda: cohort_of(tmp_path, people(1)))
    assert sentence or splits_of(result) == {"p0000": "train"}


def test_a_subject_of_many_studies_stays_in_one_split(tmp_path):
    studies = [("p0", "")] * 9 + [("p1", "")] * 7 + [("p2", "")] * 5 + people(4)
    assert set(splits_of(cohort_of(tmp_path, studies)).values()) == set(SPLITS)


def test_splits_depend_neither_on_the_order_of_rows_nor_on_shards(tmp_path):
    first = splits_of(cohort_of(tmp_path / "a", people(12)))
    assert splits_of(cohort_of(tmp_path / "b", people(12)[::-1])) == first
    assert splits_of(cohort_of(tmp_path / "c", people(12), shards=5)) == first


def test_given_splits_win_and_missing_ones_are_filled(tmp_path):
    studies = [("a", "train"), ("b", "train"), ("c", "train"), *people(9)]
    splits = splits_of(cohort_of(tmp_path, studies))
    assert {splits[name] for name in "abc"} == {"train"}
    assert set(splits.values()) == set(SPLITS)


def test_a_given_test_split_is_not_added_to_for_want_of_one(tmp_path):
    studies = [("a", "test"), ("b", "validate"), *people(8)]
    splits = splits_of(cohort_of(tmp_path, studies))
    assert splits["a"] == "test"
    assert splits["b"] == "validate"
    assert "train" in splits.values()


@pytest.mark.slow
def test_the_papers_shares_hold_from_two_thousand_subjects_on(tmp_path):
    def by_hash(subject: str) -> str:
        seed = stage_options(read({}))["cohort"]["seed"]
        place = stable_hash("split", seed, subject) / 2**64 * 100
        return "train" if place < 98 else "validate" if place < 99 else "test"

    splits = splits_of(cohort_of(tmp_path, people(2000)))
    assert splits == {subject: by_hash(subject) for subject in splits}


def test_one_subject_below_two_thousand_is_split_in_eighty_ten_and_ten(tmp_path):
    counts = Counter(splits_of(cohort_of(tmp_path, people(1999))).values())
    assert counts["train"] / 1999 == pytest.approx(0.8, abs=0.03)
    assert counts["test"] / 1999 == pytest.approx(0.1, abs=0.03)


def test_shares_that_a_user_sets_are_kept(tmp_path):
    splits = splits_of(cohort_of(tmp_path, people(20), {"train": 100, "validate": 0, "test": 0}))
    assert set(splits.values()) == {"train"}


# --------------------------------------------------------------------------------------- plans and refusals


def small_cohort(folder: Path, subjects: int = 6, **settings: object) -> Path:
    """Write a manifest of chests of noise with reports, and its settings."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(subjects):
        (folder / f"{number}.dcm").write_bytes(of(SeriesNumber=number + 1))
    rows = [f"p{n},s{n},i{n},{n}.dcm,There is a right pleural effusion.,PA," for n in range(subjects)]
    (folder / "manifest.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    cohort = {"source": "manifest", "manifest": "manifest.csv", "shards": 2}
    cohort |= settings.pop("cohort", {})
    return write_settings(folder, {"cohort": cohort} | settings)


ALL_TRAIN = {"split": {"train": 100, "validate": 0, "test": 0}}


def refusal(folder: Path, *arguments: str) -> str:
    """Return the sentence with which a run stops before its first job. Raises AssertionError if it does not."""
    done = snakemake(folder, *arguments, check=False)
    printed = done.stdout + done.stderr
    assert done.returncode != 0, printed[-1500:]
    assert "Traceback" not in printed
    assert not list(folder.glob("results/*/*"))
    lines = [line for line in printed.splitlines() if line.startswith("cxr-ils: ") or "cxr-ils: " in line]
    assert lines, printed[-1500:]
    return lines[-1]


@pytest.mark.slow
def test_radvlm_without_test_subjects_is_refused_by_a_dry_run(tmp_path):
    sentence = refusal(small_cohort(tmp_path / "a", cohort=ALL_TRAIN), "--dry-run", "radvlm")
    assert "test" in sentence
    assert "cohort.split" in sentence or "split" in sentence


@pytest.mark.slow
def test_radvlm_without_test_subjects_is_refused_by_a_run(tmp_path):
    folder = small_cohort(tmp_path / "a", cohort=ALL_TRAIN)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(folder)]
    command += ["--configfile", str(folder / "mine.yaml"), "--cores", "1", "--", "radvlm"]
    with open(tmp_path / "printed", "w") as printed:
        run = subprocess.Popen(command, cwd=ROOT, stdout=printed, stderr=printed, start_new_session=True)
        while run.poll() is None and not list(folder.glob("results/*/*")):  # its first result: it was not refused
            time.sleep(0.2)
        made = list(folder.glob("results/*/*"))
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
    text = (tmp_path / "printed").read_text()
    assert made == []
    assert re.search(r"cxr-ils: [^\n]*\btest\b", text), text[-800:]


@pytest.mark.slow
def test_a_dataset_without_test_subjects_is_not_refused(tmp_path):
    folder = small_cohort(tmp_path / "a", cohort=ALL_TRAIN)
    done = snakemake(folder, "--dry-run", "dataset", check=False)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]


def test_a_threshold_set_that_is_not_declared_is_named(tmp_path):
    done = snakemake(small_cohort(tmp_path / "a"), "--dry-run", "results/dataset/strictest/train.jsonl", check=False)
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert "No rule to produce" not in printed
    assert re.search(r"cxr-ils: [^\n]*strictest[^\n]*default", printed)


def test_a_run_that_is_not_declared_is_named(tmp_path):
    done = snakemake(small_cohort(tmp_path / "a"), "--dry-run", "results/training/quarter/model", check=False)
    printed = done.stdout + done.stderr
    assert done.returncode != 0
    assert "No rule to produce" not in printed
    assert re.search(r"cxr-ils: [^\n]*quarter", printed)


@pytest.mark.slow
def test_a_dry_run_refuses_a_changed_manifest_as_the_run_does(tmp_path):
    folder = small_cohort(tmp_path / "a")
    snakemake(folder, "reports")
    text = (folder / "manifest.csv").read_text()
    (folder / "manifest.csv").write_text(text.replace("effusion", "edema"))
    planned = snakemake(folder, "--dry-run", "reports", check=False)
    made = snakemake(folder, "reports", check=False)
    assert planned.returncode == made.returncode
    printed = [re.findall(r"cxr-ils: (.*)", done.stdout + done.stderr) for done in (planned, made)]
    assert printed[0] == printed[1] or made.returncode == 0


def plan_of(folder: Path) -> str:
    done = snakemake(folder, "plan", check=False)
    assert done.returncode == 0, done.stdout[-800:] + done.stderr[-800:]
    return done.stdout + done.stderr


@pytest.mark.slow
def test_the_plan_of_a_manifest_tells_its_splits_and_makes_nothing(tmp_path):
    folder = small_cohort(tmp_path / "a", subjects=12)
    printed = plan_of(folder)
    for word in ("train", "validate", "test", "reports", "GB"):
        assert word in printed
    assert re.search(r"\b12\b", printed)
    assert not [path for path in folder.rglob("results/**/*") if path.is_file() and path.name != "plan.tsv"]


def test_the_plan_of_the_embedded_cohort_tells_all_four_systems(tmp_path):
    write_settings(tmp_path, SLICE)
    printed = plan_of(tmp_path)
    for word in ("ILS", "SemiSyn", "MedGround", "RadVLM", "core time"):
        assert word.lower() in printed.lower()


@pytest.mark.slow
def test_a_target_prints_its_plan_before_its_first_job(tmp_path):
    folder = small_cohort(tmp_path / "a")
    done = snakemake(folder, "reports")
    printed = done.stdout + done.stderr
    first_job = printed.find("rule cohort_shards:")
    plan = re.search(r"^.*\btrain\b.*\bvalidate\b.*$", printed, re.MULTILINE)
    assert plan is not None
    assert first_job < 0 or plan.start() < first_job


@pytest.mark.slow
def test_a_finished_target_prints_no_plan(tmp_path):
    folder = small_cohort(tmp_path / "a")
    snakemake(folder, "reports")
    done = snakemake(folder, "reports")
    printed = done.stdout + done.stderr
    assert "Nothing to be done" in printed
    assert not re.search(r"\btrain\b.*\bvalidate\b", printed)


@pytest.mark.slow
def test_medground_of_a_manifest_holds_no_drawn_cells(tmp_path):
    done = snakemake(small_cohort(tmp_path / "a"), "--dry-run", "medground")
    assert not re.search(r"medground/[a-z_/]*cells", done.stdout + done.stderr)


@pytest.mark.slow
def test_medground_of_the_embedded_cohort_holds_drawn_cells(tmp_path):
    done = snakemake(write_settings(tmp_path, SLICE), "--dry-run", "medground")
    assert re.search(r"medground/[a-z_/]*cells", done.stdout + done.stderr)


# ----------------------------------------------------------------------------------------------- YOLO export


def subsets_of(folder: Path, images: int, splits: tuple[str, ...] = ("train",)) -> Counter:
    """Return the number of images in each subset of a dataset of so many patients, two images each."""
    jobs = [Job("effusion", index, image=index // 2) for index in range(2 * images)]
    made = tables(folder, write(folder, jobs, splits))
    return Counter(read_table(made["images"])["subset"])


def test_two_patients_give_a_validation_set_or_none_is_named(tmp_path):
    counts = subsets_of(tmp_path, 2)
    assert counts["train"] > 0
    assert counts["val"] > 0


def test_four_patients_give_a_validation_set(tmp_path):
    counts = subsets_of(tmp_path, 4)
    assert counts["train"] > 0
    assert counts["val"] > 0


def test_an_exported_yolo_names_no_empty_folder(tmp_path):
    from cxr.semisyn.dataset import export
    from cxr.semisyn.dataset.export import ExportOptions
    from semisyn_jobs import FINDINGS

    inputs_of_stage = write(tmp_path, [Job("effusion", 0), Job("effusion", 1)])
    made = tables(tmp_path, inputs_of_stage)
    (tmp_path / "sheet.md").write_text("Told.\n")
    options = ExportOptions(
        findings=FINDINGS, labels={name: name for name in FINDINGS}, kind="conditioning", target="source",
        pixels="frame", withhold=[], salt="", size=8, format="yolo",
    )  # fmt: skip
    inputs = {name: inputs_of_stage[name] for name in ("edited", "frames", "cohort")} | {
        name: made[name] for name in ("images", "boxes")
    }
    export.run(**inputs, sheet=str(tmp_path / "sheet.md"), folder=tmp_path / "out", options=options)
    data_yaml = yaml.safe_load((tmp_path / "out/data.yaml").read_text())
    for name in ("train", "val", "test"):
        if data_yaml.get(name):
            folder = Path(data_yaml.get("path", "")) / data_yaml[name]
            assert list((tmp_path / "out" / folder).glob("*.png")), name


# ------------------------------------------------------------------------------------------- ways to start


def started(folder: Path, *arguments: str, snakefile: Path = ROOT / "Snakefile") -> subprocess.CompletedProcess:
    """Start Snakemake from the repository with nothing but these arguments and the folder."""
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(snakefile), "--directory", str(folder), *arguments]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_a_run_without_cores_takes_those_there_are(tmp_path):
    folder = small_cohort(tmp_path / "a")
    done = started(folder, "--configfile", str(folder / "mine.yaml"), "--", "cohort")
    assert done.returncode == 0, done.stderr[-600:]
    assert (folder / "results/cohort/images.parquet").is_file()


@pytest.mark.slow
def test_a_number_of_cores_still_wins(tmp_path):
    folder = small_cohort(tmp_path / "a")
    done = started(folder, "--configfile", str(folder / "mine.yaml"), "--cores", "1", "--", "cohort")
    assert done.returncode == 0, done.stderr[-600:]
    assert re.search(r"[Pp]rovided cores: 1\b", done.stderr + done.stdout)


@pytest.mark.slow
def test_the_workflow_is_a_module_of_another(tmp_path):
    folder = small_cohort(tmp_path / "a")
    other = tmp_path / "other/Snakefile"
    other.parent.mkdir()
    other.write_text(
        f'configfile: "{folder / "mine.yaml"}"\n\nmodule cxr:\n    snakefile: "{ROOT / "Snakefile"}"\n'
        "    config: config\n\nuse rule * from cxr\n"
    )
    done = started(folder, "--cores", "1", "--", "cohort", snakefile=other)
    assert done.returncode == 0, done.stderr[-1500:]
    assert (folder / "results/cohort/images.parquet").is_file()


@pytest.mark.slow
def test_the_workflow_is_a_module_beside_a_users_own_rules(tmp_path):
    folder = small_cohort(tmp_path / "a")
    other = tmp_path / "other/workflow/Snakefile"
    other.parent.mkdir(parents=True)
    other.write_text(
        f'configfile: "{folder / "mine.yaml"}"\n\nmodule cxr:\n    snakefile: "{ROOT / "Snakefile"}"\n'
        "    config: config\n\nuse rule * from cxr\n\n"
        'rule count_reports:\n    input: "results/reports/00.jsonl"\n    output: "count.txt"\n'
        '    shell: "wc -l < {input} > {output}"\n'
    )
    done = started(folder, "--cores", "1", "--", "count_reports", snakefile=other)
    assert done.returncode == 0, done.stderr[-1500:]
    assert int((folder / "count.txt").read_text()) == sum(
        1 for _ in (folder / "results/reports/00.jsonl").open(encoding="utf-8")
    )


@pytest.mark.slow
def test_a_manifest_with_a_pipe_as_report_goes_through_the_reports(tmp_path):
    folder = small_cohort(tmp_path / "a")
    os.mkfifo(folder / "r.txt")
    text = (folder / "manifest.csv").read_text().splitlines()
    lines = [f"{text[0]},report_path", *(f"{line}," for line in text[1:-1])]
    lines.append(text[-1].replace("There is a right pleural effusion.", "") + ",r.txt")
    (folder / "manifest.csv").write_text("\n".join(lines) + "\n")
    done = started(folder, "--configfile", str(folder / "mine.yaml"), "--cores", "1", "--", "reports")
    assert done.returncode == 0, done.stderr[-800:]
