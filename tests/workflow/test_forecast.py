"""The plan before the first job: what goes in, what comes of it, what it costs, and what is refused."""

import os
import re
import subprocess
import sys
from collections import Counter
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

import parsed
from cohort_runs import COLUMNS, of, run_cohort, write_csv
from conftest import ROOT, SLICE, every, snakemake, write_settings
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import SPLITS
from cxr.workflow.forecast import cohort as forecast_module
from cxr.workflow.forecast.cohort import forecast_cohort
from cxr.workflow.forecast.counts import SystemCounts, num_lines, unit_costs
from cxr.workflow.forecast.forecast import TITLES, Cost, cost_of, duration, make_forecast, total
from cxr.workflow.forecast.refusals import refusals
from cxr.workflow.params import stage_options
from cxr.workflow.plan import Plan
from cxr.workflow.settings import read
from cxr.workflow.snakemake_compat import Planned
from cxr.workflow.start import describe_unknown_name
from hospital import build_hospital

HEAD = (*COLUMNS, "findings", "view", "split")
CLEAR, OPACITY = "The lungs are clear. The heart is normal.", "There is a left basilar opacity."
SCREEN = (30, 100)
"""Lines and columns of a small terminal."""


def stages(folder: Path, **cohort) -> dict[str, dict]:
    """The options of the stages for a cohort of a manifest in a folder."""
    given = {"source": "manifest", "manifest": str(folder / "m.csv"), "shards": 2} | cohort
    return stage_options(read({"cohort": given}))


def manifest(folder: Path, number: int, text: str = CLEAR, split: str = "") -> None:
    """Write so many studies of one image each, all of one file."""
    (folder / "a.dcm").write_bytes(of())
    rows = [(f"p{n}", f"s{n}", f"i{n}", "a.dcm", "", text, "PA", split) for n in range(number)]
    write_csv(folder / "m.csv", HEAD, rows)


def forecast(folder: Path, **cohort) -> forecast_module.CohortForecast:
    options = stages(folder, **cohort)
    with chdir(folder):  # finished results in the present folder would be counted instead
        return forecast_cohort("manifest", options, ["00", "01"], set(), 1.0)


def job(rule: str, wing: str = "ils", output: str = "x", **given) -> Planned:
    fields = {"input": {}, "wildcards": {}, "num_gpus": 0, "forced": False} | given
    return Planned(rule, wing, output=[output], **fields)


# ------------------------------------------------------------------------------------------ what goes in


def test_a_small_cohort_is_known_before_it_is_made(tmp_path):
    """All headers and reports are looked at: splits, images and subjects are those of the stage itself."""
    (tmp_path / "a.dcm").write_bytes(of())
    (tmp_path / "lateral.dcm").write_bytes(of(ViewPosition="LL"))
    texts = [CLEAR, OPACITY, "", "Die Lunge ist frei. Das Herz ist nicht vergrößert.", "."]
    rows = []
    for n in range(40):
        rows.append((f"p{n // 2}", f"s{n}", f"i{n}", "a.dcm" if n % 7 else "gone.dcm", "", texts[n % 5], "", ""))
        rows.append((f"p{n // 2}", f"s{n}", f"l{n}", "lateral.dcm", "", texts[n % 5], "", ""))
    write_csv(tmp_path / "m.csv", HEAD, rows)
    found = forecast(tmp_path)
    made = run_cohort(tmp_path, manifest=str(tmp_path / "m.csv"), shards=2)
    assert found.num_images == made.images.height == 80
    subjects = made.accepted.select("subject_id", "split").unique()
    assert found.num_subjects == {split: Counter(subjects["split"])[split] for split in SPLITS}
    assert min(found.num_subjects.values()) > 0
    assert found.num_xrays == {split: Counter(made.accepted["split"])[split] for split in SPLITS}
    assert sum(found.num_reports.values()) == pytest.approx(len(made.accepted) * 2 / 5, abs=2)
    assert found.basis == "the headers of 80 of 80 images and 34 of 34 reports"


def test_a_large_cohort_is_estimated_from_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(forecast_module, "SAMPLE", 60)
    (tmp_path / "a.dcm").write_bytes(of())
    rows = [
        (f"p{n}", f"s{n}", f"i{n}", "a.dcm" if n % 4 else "gone.dcm", "", CLEAR if n % 2 else "", "PA", "")
        for n in range(2400)
    ]
    write_csv(tmp_path / "m.csv", HEAD, rows)
    found = forecast(tmp_path)
    assert sum(found.num_xrays.values()) == pytest.approx(1800, rel=0.25)
    assert sum(found.num_reports.values()) == pytest.approx(1200, rel=0.35)
    assert found.num_subjects["train"] == pytest.approx(2352, rel=0.01)  # 98 % from 2,000 subjects on
    assert found.basis.startswith("the headers of 60 of 2,400 images and ")


def test_reports_that_the_rules_hand_over_are_estimated():
    texts = [CLEAR, OPACITY, CLEAR, "There is a left blorp. No large effusion."]
    rows = [
        {"study_id": f"s{n}", "subject_id": "p", "findings": text, "impression": None} for n, text in enumerate(texts)
    ]
    options = stage_options(read({"reports": {"engine": "both"}}))["reports"]
    assert forecast_module.share_handed_over(rows, options) == 1 / 4


def test_a_finished_cohort_is_counted(workflow_run, monkeypatch):
    monkeypatch.chdir(workflow_run)
    options_of_stages = stage_options(read(SLICE))
    shards = ["00", "01", "02"]
    found = forecast_cohort("embedded", options_of_stages, shards, set(), 0.5)
    assert found.basis == "the finished tables"
    funnel = {row["stage"]: row["remaining"] for row in read_table("results/tables/funnel.tsv").to_dicts()}
    assert found.num_images == funnel["input"]
    assert (sum(found.num_xrays.values()), sum(found.num_reports.values())) == (funnel["frames"], funnel["reports"])
    before = forecast_cohort("embedded", options_of_stages, shards, {"results/cohort/images.parquet"}, 0.5)
    assert before.num_images == found.num_images
    assert before.num_subjects == found.num_subjects
    assert sum(before.num_xrays.values()) == pytest.approx(sum(found.num_xrays.values()), abs=2)
    remade = {f"results/reports/{shard}.excluded.parquet" for shard in shards}
    again = forecast_cohort("embedded", options_of_stages, shards, remade, 0.5)
    assert again.num_xrays == found.num_xrays
    assert sum(again.num_reports.values()) == pytest.approx(funnel["reports"], abs=1)


def test_a_table_that_cannot_be_read_is_refused_as_by_the_stage(tmp_path):
    write_settings(tmp_path, {"cohort": {"source": "manifest", "manifest": "m.csv"}})
    manifest(tmp_path, 3, split="fold1")
    done = [snakemake(tmp_path, "cohort", *dry, check=False) for dry in ((), ("--dry-run",))]
    sentences = [re.findall("^cxr-ils: .*", told.stdout + told.stderr, re.M) for told in done]
    assert sentences[0] == sentences[1]
    assert "has a split named train, validate or test" in sentences[0][0]


# --------------------------------------------------------------------------------- what comes of it, and costs


def test_costs_are_of_rules_that_there_are():
    rules = parsed.working()
    large = {"semisyn_editing_radedit", "semisyn_editing_diffusion"}  # of other settings
    units = unit_costs()
    assert units["forecast"]["rules"].keys() - rules.keys() <= large
    numbers = set(SystemCounts.__dataclass_fields__) | {"images", "xrays", "reports"}
    assert {unit["per"] for unit in units["forecast"]["rules"].values() if "per" in unit} <= numbers
    assert {Path(rule.file).parent.name or "rules" for rule in rules.values()} <= {
        "imaging", "language", "ils", "semisyn", "medground", "radvlm", "vlm", "reporting", "rules",
    }  # fmt: skip


def test_the_cost_of_a_job_is_its_start_and_its_part_of_the_things():
    """By hand: 200 X-rays in four shards, 0.7 s to start and 0.0046 s each."""
    machine = SimpleNamespace(
        engines={"organs": "lite", "anomaly": "radedit", "boxes": "mine"}, gpus={"anomaly": 1}, shards=[*"1234"]
    )
    counts = {"xrays": 200, "tuning_updates": {"a": 1000, "b": 10}}
    shard = cost_of(job("masks_shard", wildcards={"shard": "00"}), counts, machine)
    assert shard == Cost(1, pytest.approx(0.7 + 50 * 0.0046), 0.0, 50 * 1625)
    assert cost_of(job("organs_shard", wildcards={"shard": "00"}), counts, machine).core_s == pytest.approx(
        1.2 + 50 * 0.0309
    )
    edited = cost_of(job("anomaly_shard", wildcards={"shard": "00"}, num_gpus=1), counts, machine)
    assert (edited.core_s, edited.gpu_s, edited.num_unknown) == (1.2, pytest.approx(50 * 4.85), 0)
    without_gpu = SimpleNamespace(engines=machine.engines, gpus={}, shards=machine.shards)
    slow = cost_of(job("anomaly_shard", wildcards={"shard": "00"}), counts, without_gpu)
    assert slow.core_s == pytest.approx(1.2 + 50 * 2630)
    assert cost_of(job("boxes_shard", wildcards={"shard": "00"}), counts, machine).num_unknown == 1
    runs = [cost_of(job("vlm_tuning_run", wildcards={"run": run}), counts, machine).core_s for run in "ab"]
    assert runs == [pytest.approx(6 + 100), pytest.approx(6 + 1)]
    assert cost_of(job("vlm_tuning_run", wildcards={"run": "a"}, num_gpus=2), counts, machine).num_unknown == 1
    assert cost_of(job("tables_counts"), counts, machine) == Cost(1, 0.7)
    assert total([shard, edited]).num_jobs == 2


def test_lines_of_a_large_file_are_estimated(tmp_path, monkeypatch):
    monkeypatch.setattr("cxr.workflow.forecast.counts.EXACT_BYTES", 1000)
    monkeypatch.setattr("cxr.workflow.forecast.counts.PEEKED_BYTES", 500)
    (tmp_path / "few").write_text("a\n" * 500)
    (tmp_path / "many").write_text("ab\n" * 5000)
    assert num_lines(tmp_path / "few") == 500
    assert num_lines(tmp_path / "many") == pytest.approx(5000, rel=0.01)


def test_times_are_told_in_the_unit_that_suits_them():
    told = [duration(seconds) for seconds in (0, 40, 600, 7200, 36_000_000)]
    assert told == ["-", "40 s", "10 min", "2.0 h", "10,000 h"]


@pytest.fixture(scope="module")
def embedded_plan(tmp_path_factory) -> tuple[Path, str]:
    """What `snakemake plan` prints of the embedded cohort in an empty folder, and the folder."""
    folder = write_settings(tmp_path_factory.mktemp("plan"), {})
    return folder, snakemake(folder, "plan").stdout


def numbers_of(text: str, title: str) -> list[int]:
    """Return the numbers of a row of the plan."""
    (line,) = re.findall(rf"^  {re.escape(title)} +([\d, ]+)$", text, re.M)
    return [int(cell.replace(",", "")) for cell in line.split()]


def test_the_target_plan_prints_on_one_screen_and_runs_nothing(embedded_plan):
    folder, text = embedded_plan
    assert {path.name for path in folder.iterdir()} <= {"mine.yaml", ".snakemake"}
    lines = text.strip().splitlines()
    assert len(lines) <= SCREEN[0]
    assert max(map(len, lines)) <= SCREEN[1] + 20
    assert lines[0] == "Plan of this run, from the plan of the embedded synthetic cohort:"
    assert lines[-1] == "Nothing would be refused."
    for title in (*TITLES.values(), "all"):
        assert title == "other models" or re.search(rf"^  {re.escape(title)} +\d+", text, re.M), title
    assert "SemiSynCXR: about 4 healthy X-rays, each used at most 2 times for a finding; about 6 images" in text


MEASURED = {
    "subjects": [48, 28, 10, 10],
    "X-rays used": [68, 42, 14, 12],
    "readable reports": [65, 40, 14, 11],
    "pairs, default": [475, 299, 98, 78],
    "MedGround lines": [483, 297, 72, 114],
    "RadVLM lines, all": [1401, 1029, 211, 161],
}
"""What the finished embedded cohort had."""


def test_the_plan_of_the_embedded_cohort_was_right_within_a_factor_of_two(embedded_plan):
    _, text = embedded_plan
    for title, measured in MEASURED.items():
        for planned, real in zip(numbers_of(text, title), measured, strict=True):
            assert real / 2 <= planned <= real * 2, title
    assert numbers_of(text, "X-rays used") == MEASURED["X-rays used"]


def test_a_dry_run_prints_the_plan_of_what_it_makes(embedded_plan, dry_run):
    folder, _ = embedded_plan
    done = snakemake(folder, "--dry-run", "semisyn")
    assert "Plan of this run" in done.stdout + done.stderr
    assert "RadVLM" not in done.stdout + done.stderr
    (row,) = re.findall(r"^  all +([\d,]+)", done.stdout + done.stderr, re.M)
    jobs = dry_run(folder, "semisyn")
    targets = {name for name in jobs if parsed.rules()[name].target}
    assert int(row) == sum(number for name, number in jobs.items() if name not in targets)
    short = snakemake(folder, "--dry-run", "phantom", "--config", "phantom={subjects: 6, studies: 6}")
    assert "Plan of this run" in short.stdout + short.stderr


def test_a_finished_run_prints_no_plan(workflow_run):
    done = snakemake(workflow_run, "--dry-run", "all")
    assert "Plan of this run" not in done.stdout + done.stderr
    assert "Nothing to be done" in done.stdout + done.stderr


def test_the_costs_are_those_of_the_systems_that_run(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    made = make_forecast(Plan({}, []), [job("dataset_pairs"), job("semisyn_dataset_tables", "semisyn")])
    assert made.cohort.num_images == 96
    assert made.cohort.num_xrays["test"] == 12
    assert made.counts.num_asked == 6
    assert made.cost.num_jobs == 2
    assert "radvlm" not in made.costs


@pytest.mark.slow
def test_the_hospital_is_planned_before_its_first_job(shared, tmp_path):
    build_hospital(tmp_path, shared)
    text = snakemake(tmp_path, "plan").stdout
    assert text.startswith("Plan of this run, from the headers of 61 of 61 images and 47 of 47 reports:")
    assert numbers_of(text, "images listed") == [61]
    subjects = numbers_of(text, "subjects")
    assert subjects[0] == sum(subjects[1:]) == 40
    assert min(subjects) > 0
    for title, real in (("X-rays used", 46), ("readable reports", 44), ("pairs, default", 293)):
        assert real / 1.5 <= numbers_of(text, title)[0] <= real * 1.5
    assert text.rstrip().endswith("Nothing would be refused.")


# ------------------------------------------------------------------------------------------------ refusals


TRAINED = {
    "radvlm": "to tune RadVLM on in the split train|to score RadVLM in the split test",
    "evaluation": "to (train ILS on|validate ILS with|score ILS) in the split",
    "medground_scoring": "to score MedGround in the split test",
}


@pytest.mark.parametrize("target", every(3, TRAINED))
def test_a_run_that_would_score_nothing_is_refused_before_its_first_job(tmp_path, target):
    """All are in train. The dry run says the same as the run."""
    manifest(tmp_path, 2, split="train")
    write_settings(tmp_path, {"cohort": {"source": "manifest", "manifest": "m.csv", "shards": 1}})
    done = [snakemake(tmp_path, target, *dry, check=False) for dry in ((), ("--dry-run",))]
    sentences = [re.findall("^cxr-ils: .*", told.stdout + told.stderr, re.M) for told in done]
    assert sentences[0] == sentences[1]
    (sentence,) = sentences[0]
    assert re.search(TRAINED[target], sentence)
    assert "add subjects, or empty the table's column split" in sentence
    assert not (tmp_path / "results").exists()
    assert snakemake(tmp_path, "--dry-run", "radvlm_instructions", "medground", "dataset")


def planned_of(settings: dict, *jobs: Planned) -> list[str]:
    """Return what is refused of jobs, for a manifest of the settings."""
    plan = Plan(settings, [])
    cohort = forecast_cohort(plan.settings.cohort.source, plan.options, plan.shards, set(), 1.0)
    return refusals(plan, cohort, SystemCounts(), jobs)


def test_the_reason_of_an_empty_split_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tuning = job("vlm_tuning_run", "vlm", input={"lines": "results/radvlm/instructions/all/train.jsonl"})
    scoring = job("radvlm_evaluation_scores", "radvlm", input={"lines": "results/radvlm/instructions/all/test.jsonl"})
    settings = {"cohort": {"source": "manifest", "manifest": "m.csv"}}
    manifest(tmp_path, 9)
    assert planned_of(settings, tuning, scoring) == []
    without = {"cohort": settings["cohort"] | {"split": {"train": 90, "validate": 10, "test": 0}}}
    assert planned_of(without, tuning, scoring) == [
        "there is nothing to score RadVLM in the split test: cohort.split.test is 0; raise it, or leave "
        "cohort.split out"
    ]
    manifest(tmp_path, 9, split="test")
    (sentence,) = planned_of(settings, tuning, scoring)
    assert sentence.startswith("there is nothing to tune RadVLM on in the split train: the cohort has no subject")
    # lines of another source may fill the split
    more = settings | {"radvlm": {"sources": {"use": ["own", "boxes"], "list": {
        "boxes": {"format": "coco", "path": "m.csv", "pictures": "."}}}}}  # fmt: skip
    assert planned_of(more, tuning) == []
    given = settings | {"medground": {"sources": {"sets": {"cells": {"kind": "cells", "domain": "nuclei"}}}}}
    asked = job("medground_scoring_run", "medground", input={"lines": "results/medground/dataset/train.jsonl"})
    assert planned_of(given, asked) == []
    assert planned_of(settings, asked) != []


def test_a_source_that_no_mix_reads_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest(tmp_path, 9)
    sources = {"use": ["own", "boxes"], "list": {"boxes": {"format": "coco", "path": "m.csv", "pictures": "."}}}
    settings = {"cohort": {"source": "manifest", "manifest": "m.csv"}, "radvlm": {"sources": sources}}
    making = job("radvlm_instructions_part", "radvlm")
    (sentence,) = planned_of(settings, making)
    assert sentence.startswith("radvlm.sources.use names boxes, which no mix reads: set radvlm.instructions.mixes.all.")
    assert planned_of(settings, job("radvlm_sources_external", "radvlm")) == []
    settings["radvlm"]["instructions"] = {"mixes": {"all": {"preset": "paper"}}}
    settings["radvlm"]["sources"]["list"]["boxes"]["format"] = "nih"
    settings["radvlm"]["instructions"]["mixes"]["all"]["tasks"] = {"abnormality_grounding": {"boxes": {}}}
    assert planned_of(settings, making) == []


def test_findings_are_not_put_into_x_rays_of_an_empty_split(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    manifest(tmp_path, 9, split="test")
    settings = {"cohort": {"source": "manifest", "manifest": "m.csv"}}
    (sentence,) = planned_of(settings, job("semisyn_placement_plan", "semisyn"))
    assert sentence.startswith("semisyn.healthy.splits is train, but the cohort has no subject")


def test_a_finished_pool_refuses_too_many_images_before_the_first_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = Plan({"semisyn": {"dataset": {"per_finding": 50}}}, [])
    cohort = forecast_cohort("embedded", plan.options, plan.shards, set(), 1.0)
    placement = job("semisyn_placement_plan", "semisyn")
    known = SystemCounts(num_healthy=3.0, is_healthy_counted=True)
    (sentence,) = refusals(plan, cohort, known, [placement])
    assert sentence.startswith("semisyn.dataset.per_finding asks for 50 images of each finding, so each of 3 healthy ")
    assert "up to 18 times for one finding, but semisyn.placement.most_per_image is 2: ask for at most 5" in sentence
    assert refusals(plan, cohort, SystemCounts(num_healthy=3.0), [placement]) == []  # an estimate refuses nothing
    assert refusals(plan, cohort, known, [job("semisyn_dataset_tables", "semisyn")]) == []


def test_the_pool_is_counted_once_it_is_finished(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "results/semisyn/healthy/images.parquet"
    path.parent.mkdir(parents=True)
    write_table(path, pl.DataFrame({"image_id": [f"i{n}" for n in range(9)]}))
    made = make_forecast(Plan({}, []), [job("semisyn_placement_plan", "semisyn", "plan.parquet")])
    assert (made.counts.num_healthy, made.counts.num_asked) == (9, 6)
    assert "  SemiSynCXR: 9 healthy X-rays" in made.text()
    again = make_forecast(Plan({}, []), [job("a", "semisyn", "results/semisyn/healthy/images.parquet")])
    assert again.counts.num_healthy < 9


# ---------------------------------------------------------------------------------------------- wrong names


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("results/dataset/ano0.05/train.jsonl", "there is no threshold set 'ano0.05'; there are default, half"),
        ("./results/masks/nope/00.h5", "no threshold set 'nope'"),
        ("results/training/half/model", "there is no run 'half'; there are default, base (training.runs"),
        ("results/inference/half/test.jsonl", "no run 'half'"),
        ("results/vlm/other/weights", "no vision-language run 'other'"),
        ("results/radvlm/instructions/some/train.jsonl", "there is no mix 'some'; there is all (radvlm"),
        ("results/medground/regions/films/00.parquet", "no MedGround source 'films'; there are ils, cells"),
        ("results/semisyn/detectors/mine.s0/model", "no detector run 'mine'; there are synthetic, shuffled"),
        ("results/dataset/default/train.jsonl", ""),
        ("results/index.html", ""),
        ("somewhere/else", ""),
    ],
)
def test_a_name_that_is_not_declared_is_told(path, sentence):
    told = describe_unknown_name(Plan({}, []), path)
    assert sentence in told
    assert bool(sentence) == bool(told)


def test_snakemake_ends_in_that_sentence(tmp_path):
    write_settings(tmp_path, {})
    done = snakemake(tmp_path, "results/dataset/nope/train.jsonl", check=False)
    assert done.returncode
    assert "cxr-ils: results/dataset/nope/train.jsonl: there is no threshold set 'nope'" in done.stderr
    assert "No rule to produce" not in done.stdout + done.stderr


def test_the_plan_imports_no_library_of_the_stages():
    """The environments of language models lack scipy, and the driver stays small."""
    heavy = {"scipy", "h5py", "torch", "spacy", "matplotlib", "transformers"}
    code = f"import sys, cxr.workflow.forecast.forecast; print(sorted({heavy} & set(sys.modules)))"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": "scripts"}, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
