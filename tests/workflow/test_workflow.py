"""The workflow as a whole: targets, profiles, wrong input, reproducibility."""

import importlib
import inspect
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import get_type_hints

import polars as pl
import pytest

import parsed
from conftest import ROOT, SLICE, every, snakemake, write_settings
from cxr.base.exclusions import STAGES
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import SPLITS
from profiles import profile
from whole_runs import arrays, pair_lines

IMAGE_STAGES = ("frames", "organs", "anomaly", "anatomy", "boxes")
SHARDS = ("00", "01", "02")


def test_a_run_makes_what_the_contract_names(workflow_run):
    results = workflow_run / "results"
    for shard in SHARDS:
        for name in (
            f"cohort/{shard}.parquet", f"frames/{shard}.h5", f"reports/{shard}.jsonl", f"organs/{shard}.h5",
            f"anomaly/{shard}.h5", f"anatomy/{shard}.h5", f"boxes/{shard}.parquet", f"masks/default/{shard}.h5",
        ):  # fmt: skip
            assert (results / name).is_file(), name
    for stage in STAGES:
        assert (results / stage / "excluded.parquet").is_file(), stage
    for name in ("masks/default/findings.parquet", "masks/default/index.parquet", "cohort/images.parquet"):
        assert (results / name).is_file(), name
    assert all(lines for lines in pair_lines(workflow_run).values())


def test_nothing_is_lost(workflow_run):
    results = workflow_run / "results"
    images = read_table(results / "cohort/images.parquet")
    manifest = pl.read_csv(results / "phantom/manifest.csv", infer_schema=False)
    assert sorted(images["image_id"]) == sorted(manifest["image_id"])
    funnel = read_table(results / "tables/funnel.tsv")
    assert funnel.filter(pl.col("reason") != "")["images"].sum() + funnel["remaining"][-1] == len(images)
    assert set(read_table(results / "tables/conservation.tsv")["balanced"]) == {"yes"}


def test_every_mask_id_is_found_through_the_index(workflow_run):
    masks = workflow_run / "results/masks/default"
    index = {row["mask_id"]: row for row in read_table(masks / "index.parquet").iter_rows(named=True)}
    lines = [line for split in SPLITS for line in read_lines(workflow_run / f"results/dataset/default/{split}.jsonl")]
    named = {line["mask_id"] for line in lines} - {None}
    assert named
    for mask_id in named:
        with Shard(masks / f"{index[mask_id]['shard']}.h5", key="mask_id") as shard:
            assert shard.ids[index[mask_id]["row"]] == mask_id
            assert shard.get("mask", mask_id).any()
    assert all((line["mask_id"] is not None) == line["seg"] for line in lines)


@pytest.mark.slow
def test_frames_of_one_shard_and_one_core_are_the_same_bytes(workflow_run, tmp_path):
    write_settings(tmp_path, SLICE | {"cohort": {"shards": 1}})
    snakemake(tmp_path, "frames", cores=1)
    made = arrays(tmp_path)
    assert made
    assert made == {key: array for key, array in arrays(workflow_run).items() if key[0] == "frames"}


@pytest.mark.slow
def test_one_shard_and_one_core_give_the_same_bytes(workflow_run, tmp_path):
    write_settings(tmp_path, SLICE | {"cohort": {"shards": 1}})
    snakemake(tmp_path, "dataset", cores=1)
    assert pair_lines(tmp_path) == pair_lines(workflow_run)
    assert arrays(tmp_path) == arrays(workflow_run)


def kill_within(directory: Path, target: str, stage: str) -> None:
    """Start a run of the slice as a user does, and kill it with all its jobs as soon as a stage is at work."""
    write_settings(directory, SLICE)
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(ROOT / "Snakefile"), "--directory", str(directory)]
    command += ["--configfile", str(directory / "mine.yaml"), "--cores", "2", target]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(1200):
            if (directory / "results" / stage).is_dir() or process.poll() is not None:
                break
            time.sleep(0.1)
        assert process.poll() is None, "the run ended before it could be killed"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def unlock_as_told(directory: Path, target: str) -> None:
    """Start again: there is one refusal, with the command that helps; it is run as it is told."""
    refused = snakemake(directory, target, check=False)
    assert refused.returncode == 1
    assert f"{directory} is locked by a run that was killed" in refused.stderr
    assert "Traceback" not in refused.stderr
    (told,) = [line.strip() for line in refused.stderr.splitlines() if line.endswith(" --unlock")]
    subprocess.run(shlex.split(told), cwd=ROOT, check=True, capture_output=True)


@pytest.mark.slow
def test_a_run_killed_in_its_first_job_goes_on(workflow_run, tmp_path):
    kill_within(tmp_path, "cohort", "phantom")
    assert not (tmp_path / "results/phantom/manifest.csv").exists()
    unlock_as_told(tmp_path, "cohort")
    snakemake(tmp_path, "cohort")
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("results/cohort/0*.parquet"))
    assert [path.name for path in made] == [f"{shard}.parquet" for shard in SHARDS]
    for path in (*made, "results/phantom/manifest.csv"):
        assert (tmp_path / path).read_bytes() == (workflow_run / path).read_bytes(), path


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(workflow_run, tmp_path):
    kill_within(tmp_path, "dataset", "organs")
    assert not (tmp_path / "results/dataset/default/train.jsonl").exists()
    unlock_as_told(tmp_path, "dataset")
    snakemake(tmp_path, "dataset")
    assert pair_lines(tmp_path) == pair_lines(workflow_run)
    assert arrays(tmp_path) == arrays(workflow_run)
    assert not list(tmp_path.glob("results/**/.*.part"))


def test_a_finished_run_has_nothing_to_do(workflow_run, dry_run):
    assert dry_run(workflow_run) == {}


def test_every_stage_is_a_target(workflow_run, dry_run):
    assert dry_run(workflow_run, *STAGES, "tables", "figures") == {}


def test_the_full_cohort_has_the_expected_jobs(tmp_path, dry_run):
    jobs = dry_run(write_settings(tmp_path, {"cohort": {"shards": 5}}))
    for stage in (*IMAGE_STAGES, "reports", "masks"):
        assert jobs[f"{stage}_shard"] == 5
    assert jobs["masks_sweep"] == 5
    assert jobs["cohort_shards"] == jobs["dataset_pairs"] == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"organs": {"engine": "best"}}, "organs.engine is 'best'"),
        ({"cohort": {"source": "manifest", "manifest": "nowhere.csv"}}, "nowhere.csv"),
        ({"cohort": {"source": "mimic", "root": "nowhere"}}, "nowhere"),
        ({"thresholds": {"build": ["defualt"]}}, "'defualt'"),
        ({"treshold": {}}, "treshold is not a setting"),
        ({"boxes": {"engine": "table", "table": "nowhere.csv"}}, "boxes.table: there is no file 'nowhere.csv'"),
        ({"cohort": {"exclude": "nowhere.txt"}}, "cohort.exclude: there is no file 'nowhere.txt'"),
        ({"evaluation": {"reviewed": "nowhere.txt"}}, "evaluation.reviewed: there is no file 'nowhere.txt'"),
    ],
)
def test_a_users_mistake_stops_before_any_job(tmp_path, change, words):
    done = snakemake(write_settings(tmp_path, change), "all", check=False)
    assert done.returncode == 1
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    ours = [
        line for line in done.stderr.splitlines() if not line.startswith(("Using workflow specific", "Config file "))
    ]
    assert len(ours) == 1
    assert ours[0].startswith("cxr-ils: ")
    assert not (tmp_path / "results").exists()


COLUMNS = "subject_id,study_id,image_id,image_path,report_path\n"


@pytest.mark.parametrize("dry", every(2, [["--dry-run"], []]))
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["explain"], "explain needs a study: snakemake explain --config study=<study_id>"),
        (["agreement"], "agreement.references is empty, so there is nothing to compare with"),
        (["review_merge"], "review.sheets is empty: give the experts' filled sheets"),
        (["predict"], "predict needs --config image=chest.dcm instruction="),
        (["predict", "--config", "image=a.png"], "predict needs --config image=chest.dcm instruction="),
    ],
)
def test_what_cannot_be_done_is_refused_before_any_job(tmp_path, words, told, dry):
    for name in ("a.png", "a.txt"):
        (tmp_path / name).touch()
    (tmp_path / "manifest.csv").write_text(f"{COLUMNS}p,s,i,{tmp_path / 'a.png'},{tmp_path / 'a.txt'}\n")
    settings = {"cohort": {"source": "manifest", "manifest": str(tmp_path / "manifest.csv")}}
    words = [word.replace("=a.png", f"={tmp_path / 'a.png'}") for word in words]
    done = snakemake(write_settings(tmp_path, settings), *words, *dry, check=False)
    assert done.returncode == 1
    assert next(line for line in done.stderr.splitlines() if told in line).startswith("cxr-ils: ")
    assert "Traceback" not in done.stderr + done.stdout
    assert not (tmp_path / "results").exists()
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("target", "split", "told"),
    [
        ("review", "test", "so there is nothing to review: choose another review.split"),
        ("training", "train", "so there is nothing to train on"),
    ],
)
def test_a_split_without_a_pair_is_refused_before_any_job(workflow_run, tmp_path, target, split, told):
    copy = Path(shutil.copytree(workflow_run, tmp_path / "copy", symlinks=True))
    lines = copy / f"results/dataset/default/{split}.jsonl"
    lines.write_text("")
    for dry in ([], ["--dry-run"]):
        done = snakemake(copy, target, *dry, check=False)
        assert done.returncode == 1
        assert f"cxr-ils: results/dataset/default/{split}.jsonl holds no pair, {told}" in done.stderr
    assert not (copy / f"logs/{target}").exists()
    lines.unlink()  # then it is made, and whether it holds a pair is not known yet
    assert "holds no pair" not in snakemake(copy, target, "--dry-run").stderr


def test_a_missing_column_is_named(tmp_path):
    (tmp_path / "manifest.csv").write_text("subject_id,study_id,image_path\np1,s1,a.png\n")
    settings = {"cohort": {"source": "manifest", "manifest": str(tmp_path / "manifest.csv")}}
    done = snakemake(write_settings(tmp_path, settings), "all", check=False)
    assert done.returncode == 1
    assert "image_id" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_undeclared_threshold_set_is_no_target(tmp_path):
    done = snakemake(write_settings(tmp_path, SLICE), "results/dataset/ano0.99/train.jsonl", check=False)
    assert done.returncode == 1
    assert "there is no threshold set 'ano0.99'; there are default, half, ano0.05_conf0.1" in done.stderr


def test_a_grid_point_is_a_target(tmp_path, dry_run):
    jobs = dry_run(write_settings(tmp_path, SLICE), "results/dataset/ano0.05_conf0.1/train.jsonl")
    assert jobs["masks_shard"] == 3


@pytest.mark.slow
def test_the_released_layout_is_a_setting(tmp_path, dry_run):
    assert "dataset_layout" not in dry_run(write_settings(tmp_path / "without", SLICE), "dataset")
    settings = SLICE | {"dataset": {"mimic_ils_layout": True}, "thresholds": {"build": ["default", "half"]}}
    assert dry_run(write_settings(tmp_path / "with", settings), "dataset")["dataset_layout"] == 2


def test_a_new_table_of_boxes_is_an_input_of_the_boxes_alone(tmp_path, dry_run):
    (tmp_path / "found.csv").write_text("image_id,x1,y1,x2,y2,confidence,class_name\n")
    settings = SLICE | {"boxes": {"engine": "table", "table": "found.csv"}}
    assert dry_run(write_settings(tmp_path, settings), "boxes")["boxes_shard"] == 3


def test_the_default_profile_leaves_other_profiles_alone():
    # it is laid over --profile and wins key by key
    assert not profile("default").keys() & (profile("slurm").keys() | profile("local").keys())
    assert "code" not in profile("default")["rerun-triggers"]


def test_the_slurm_profile_is_found_at_the_root():
    assert (ROOT / "slurm").is_symlink()
    assert os.readlink(ROOT / "slurm") == "profiles/slurm"
    command = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--dry-run", "--quiet", "all"]
    if shutil.which("conda") is None:
        command += ["--sdm", "env-modules"]  # another way of deployment that no rule uses: the profile asks for conda
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


GIVEN = {"options", "attrs", "threads", "code", "compute", "execution"}
"""What a job gives its function besides files, params and wildcards."""


def test_every_rule_declares_what_a_user_relies_on():
    lacking = {}
    for rule in parsed.rules().values():
        if rule.target:
            assert not rule.output, rule.name
            continue
        for name in ("log", "benchmark", "environment", "threads", "message"):
            assert getattr(rule, name), f"{rule.name}: {name}"
        assert rule.resources.keys() >= {"mem_mb", "runtime"}, rule.name
        assert {"function", "code"} <= set(rule.params), rule.name
        assert rule.script.endswith("scripts/job.py"), rule.name
        assert not rule.retries, rule.name
        # Snakemake compares the set of the values, whatever their names: settings are one param, a dict
        module = importlib.import_module(f"cxr.{rule.function}".rpartition(".")[0])
        function = getattr(module, rule.function.rpartition(".")[2])
        asks = inspect.signature(function).parameters
        assert "options" in asks or asks.keys() >= {*rule.settings}, rule.name
        if "options" in asks:
            of_options = {*rule.params} - {"function", "code", "options", *asks}
            assert of_options <= inspect.signature(get_type_hints(function)["options"]).parameters.keys(), rule.name
        given = {*rule.input, *rule.made, *rule.params, *GIVEN, *re.findall(r"{(\w+)", " ".join(rule.output))}
        needs = {name for name, one in asks.items() if one.default is one.empty and one.kind is one.KEYWORD_ONLY}
        needs -= {*given, *rule.settings}
        if needs and not rule.unnamed:
            lacking[rule.name] = needs
    # of a model that labels reports, and of predictions to score: by default there are none; settings by wildcards
    assert lacking == {
        "radvlm_sources_labels": {"model", "revision", "weights"}, "evaluation_predictions": {"size"},
        "radvlm_conversations_told": {"works"}, "vlm_answers_read": {"convention"},
        "radvlm_evaluation_read": {"model", "adapter", "boxes", "beyond"},
        "semisyn_detectors_predictions": {"engine", "engine_settings", "findings"},
    }  # fmt: skip


def test_a_file_of_rules_stays_short():
    for path in sorted((ROOT / "rules").rglob("*.smk")):
        assert len(path.read_text().splitlines()) <= 310, path.name


def test_the_report_is_made_offline(workflow_run, tmp_path):
    report = tmp_path / "report.html"
    snakemake(workflow_run, "--report", str(report))
    text = report.read_text()
    assert 1_000_000 < len(text) < 30_000_000
    categories, results = (
        json.loads(re.search(rf"var {name} = (\{{.*\}});?\n", text).group(1)) for name in ("categories", "results")
    )
    # Snakemake shows them by name: the numbers keep the order of reading
    assert sorted(categories) == [
        "1 From images to pairs", "2 Dataset", "3 Recall", "4 Cases", "5 Comparison with the truth", "7 Costs",
        "8 Versions",
    ]  # fmt: skip
    for category, parts in categories.items():
        for part, paths in parts.items():
            labels = [json.dumps(results[path]["labels"]) for path in paths]
            assert len(set(labels)) == len(labels), (category, part)
            assert all((workflow_run / path).stat().st_size for path in paths)
    captions = {path: result["caption"] for path, result in results.items()}
    assert all(len(caption) > 60 for caption in captions.values())
    assert not [path for path, caption in captions.items() if "{{" in caption or "{%" in caption]
    case = next(caption for path, caption in captions.items() if "page/parts" in path)
    assert "all but edema ano 0.1, anatomy 0.25, conf 0.2, signal 0.2, size 0.1" in " ".join(case.split())


def test_results_hold_no_time_and_no_machine(workflow_run):
    for path in workflow_run.glob("results/dataset/default/*.jsonl"):
        for line in path.read_text().splitlines():
            assert str(workflow_run) not in json.dumps(json.loads(line))


SYSTEMS = ("semisyn", "medground", "radvlm", "vlm")
AGAIN = (
    "semisyn_realism_", "semisyn_detectors_frames", "semisyn_priors_organs", "radvlm_sources_frames",
    "radvlm_evaluation_segmenter_run", "radvlm_evaluation_image_masks",
)  # fmt: skip
"""Rules that run a stage of another wing again, on other images or questions."""
"""Wings whose stages have the system's name before their own (docs/explanation/architecture.md)."""
BASES = ("ils.rosalia.lite.", "ils.rosalia.convert.")
"""Module of the base of ROSALIA lite, which an edit of the training must not remake."""
SHARED = ("reporting.review.unit_pages.", "radvlm.chexbert.", "medground.charts.")
"""Modules that serve several stages: the pages that experts of every system get, the labeller CheXbert, charts."""


def test_one_stage_one_name():
    parts = {
        "weights_rosalia", "weights_semisyn", "weights_radvlm", "instructions_llava", "evaluation_annotators",
        "release_mixes", "sources_labels", "reports_models", "evaluation_paraphrases", "training_models",
        "dataset_entities", "dataset_exports", "dataset_tables", "dataset_tokens", "realism_features", "review_queries",
        "sources_external",
        "evaluation_judge", "evaluation_figures", "evaluation_segmenter", "evaluation_image", "evaluation_all",
        "page_radvlm", "plan", "clean_old",
    }  # fmt: skip
    files = [path.relative_to(ROOT / "rules") for path in (ROOT / "rules").glob("*/*.smk") if path.stem not in parts]
    assert files
    for file in files:
        wing, stage = file.parts[0], file.stem
        room = ROOT / "scripts/cxr" / wing / stage
        assert (room / "__init__.py").is_file() or room.with_suffix(".py").is_file(), stage
        tests = f"{wing}/test_*{stage}*.py" if wing in SYSTEMS else f"*/test_{stage}.py"
        assert list((ROOT / "tests").glob(tests)), file
    stages = {f"{file.parts[0]}_{file.stem}" if file.parts[0] in SYSTEMS else file.stem for file in files}
    stages |= {"gather", "medground"}  # medground-vllm: two stages ask the same language model
    assert [path.name for path in (ROOT / "envs").glob("*.yaml") if path.stem.partition("-")[0] not in stages] == []
    for rule in parsed.working().values():
        wing, _, stage = rule.file.removeprefix("rules/").removesuffix(".smk").partition("/")
        own = stage.partition("_")[0]
        if wing in SYSTEMS:
            assert rule.name.startswith(f"{wing}_{own}"), rule.name
            assert rule.function.startswith((f"{wing}.{own}.", *SHARED)) or rule.name.startswith(AGAIN)
            assert all(path.startswith(f"logs/{wing}/{own}") for path in rule.log), rule.name
        elif stage:
            assert rule.name.partition("_")[0] == own
            assert rule.function.startswith((f"{wing}.{own}.", *BASES)), rule.name
            assert all(path.startswith(f"logs/{own}/") for path in rule.log), rule.name
