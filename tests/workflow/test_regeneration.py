"""What an edit runs again, and nothing else: the tables of docs/regeneration.md are read, and each row is tried."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
import yaml

import parsed
from conftest import ROOT, SLICE, snakemake, write_settings
from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.imaging.weights.catalogue import placed
from cxr.workflow.params import stage_options
from cxr.workflow.preflight import refuse_blind_rerun
from cxr.workflow.settings import read
from cxr.workflow.snakemake_compat import Planned
from planner import Job, Planner
from whole_runs import arrays, copy_repository, pair_lines

PAGE = (ROOT / "docs/regeneration.md").read_text(encoding="utf-8")
TARGETS = {name for name, rule in parsed.rules().items() if rule.target}
"""Rules that do nothing themselves."""
MANIFEST = {"source": "manifest", "manifest": "manifest.csv", "shards": 2}
SHEETS = {"sheets": ["manifest.csv"]}
"""Sheets of experts, without which the review's tables are refused; empty runs take any file for them."""
RUNS = {
    "manifest": {"cohort": MANIFEST, "dataset": {"released_layout": True}, "review": SHEETS},
    "embedded": {"cohort": {"shards": 2}, "review": SHEETS},
    "paper": {
        "cohort": MANIFEST,
        "reports": {"engine": "both"}, "organs": {"engine": "hybridgnet"}, "anomaly": {"engine": "radedit"},
        "anatomy": {"engine": "cxas"}, "boxes": {"engine": "scaled_yolov4"},
        "training": {
            "engine": "rosalia",
            "runs": {"default": {"paraphrases": True}, "published": {"weights": "rosalia", "trained": False}},
        },
        "paraphrase": {"engine": "vllm"}, "inference": {"paraphrases": True}, "review": SHEETS,
    },
}  # fmt: skip
NETS = ("organs", "anomaly", "anatomy", "boxes")
ASKED = ("all", "ablation", "paraphrase", "inference", "evaluation", "review_merge")


@dataclass(frozen=True)
class Row:
    """One row of a table: what is edited, and what the page says of it."""

    run: str
    keys: tuple[str, ...]
    edit: str
    again: str

    def __str__(self) -> str:
        return f"{self.run}: {self.edit}"


def tables() -> list[list[list[str]]]:
    """Return the tables of the page: rows of cells, the head left out."""
    found = re.findall(r"^\|.*\n\|[-|]+\n((?:\|.*\n)+)", PAGE, flags=re.M)
    return [[[cell.strip() for cell in line.strip("|").split(" | ")] for line in body.splitlines()] for body in found]


FOLLOWS, *EDITS, FILES = tables()
ROWS = [
    Row(run, tuple(re.findall("`(.+?)`", cells[0])), cells[-2].split("`")[1], cells[-1])
    for run, table in zip(("manifest", "embedded", "paper", "manifest"), EDITS, strict=True)
    for cells in table
]


def following(rules: set[str], then: dict[str, set[str]]) -> set[str]:
    """Return the rules and all that follow from them."""
    seen: set[str] = set()
    waiting = list(rules)
    while waiting:
        if (rule := waiting.pop()) not in seen:
            seen.add(rule)
            waiting += then.get(rule, ())
    return seen


def said(text: str, then: dict[str, set[str]]) -> set[str]:
    """Return the rules that a cell names: ``rule`` alone, ``rule`` ↓ with what follows, less those after "not"."""
    yes, _, no = text.partition(" not ")
    sets = []
    for part in (yes, no):
        named = re.findall(r"`(\w+)`( ↓)?", part)
        sets.append(following({rule for rule, arrow in named if arrow}, then) | {rule for rule, _ in named})
    assert sets[0] or text == "nothing", text
    return sets[0] - sets[1]


def follows() -> dict[str, set[str]]:
    """Return {rule: rules}: the first table of the page, every rule of a right cell with its own arrow."""
    then: dict[str, set[str]] = {}
    for left, right in FOLLOWS:
        for rule in re.findall(r"`(\w+)`", left):
            then[rule] = set(re.findall(r"`(\w+)`", right))
    return then


THEN = follows()


@pytest.fixture(scope="module")
def planner(tmp_path_factory) -> Iterator[Planner]:
    """Dry runs of a copy of the repository, in which a test may edit files."""
    with Planner(copy_repository(tmp_path_factory.mktemp("regeneration") / "clone")) as planner:
        yield planner


@dataclass(frozen=True)
class Run:
    """A finished run."""

    directory: Path
    rules: set[str]

    @property
    def settings(self) -> Path:
        return self.directory / "mine.yaml"


@pytest.fixture(scope="module")
def finished(planner, tmp_path_factory) -> Callable[[str], Run]:
    """Return a function that gives one of ``RUNS``, of empty files that ``snakemake --touch`` takes for results."""
    base = tmp_path_factory.mktemp("finished")

    @cache
    def finish(name: str) -> Run:
        return pretend(planner, base / name, RUNS[name])

    return finish


def pretend(planner: Planner, directory: Path, settings: dict) -> Run:
    """Make a run of empty files for which Snakemake has the records of a real one."""
    write_settings(directory, settings)
    (directory / "manifest.csv").write_text("subject_id,study_id,image_id,image_path,report_path\ns,s,i,i.png,s.txt\n")
    for path in (directory / name for names in placed("weights").values() for name in names):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    jobs = planner.jobs(directory, directory / "mine.yaml", "--", *ASKED)
    for path in (directory / name for job in jobs for name in job.output):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if path.suffix else path.mkdir()
    planner.run(directory, directory / "mine.yaml", "--touch", "--forceall", "--", *ASKED)
    return Run(directory, rules(jobs))


def merged(one: dict, other: dict) -> dict:
    """Lay one mapping over another, as configuration files are."""
    return one | {
        key: merged(one[key], value) if isinstance(value, dict) and isinstance(one.get(key), dict) else value
        for key, value in other.items()
    }


def rules(jobs: list[Job]) -> set[str]:
    return {job.rule for job in jobs} - TARGETS


def again(planner: Planner, run: Run, settings: Path | None = None) -> set[str]:
    return rules(planner.jobs(run.directory, settings or run.settings, "--", *ASKED))


@pytest.mark.parametrize("name", RUNS)
def test_a_finished_run_has_nothing_to_do(name, planner, finished):
    assert again(planner, finished(name)) == set()


REMARK = b"\n# edited\n"
CHANGES = {".py": b"\nEDITED = 1\n", ".yaml": b"\nedited: 1\n"}
"""What changes the meaning of code; of other files every byte counts (weights.yaml is read at the parse)."""


@contextmanager
def edited(planner: Planner, run: Run, tmp_path: Path, edits: list[str]) -> Iterator[Path]:
    """Make edits, of settings or at the end of files of the repository; yield the settings. Files are put back."""
    settings, files = json.loads(run.settings.read_text()), {}
    for edit in edits:
        path = planner.root / edit
        if path.is_file():
            files[path] = path.read_bytes()
        else:
            settings = merged(settings, yaml.safe_load(edit))
    try:
        for path, before in files.items():
            code = (
                path.parts[len(planner.root.parts)] in ("scripts", "resources", "envs") and path.name != "weights.yaml"
            )
            path.write_bytes(before + (CHANGES.get(path.suffix, REMARK) if code else REMARK))
        yield write_settings(tmp_path, settings) / "mine.yaml"
    finally:
        for path, before in files.items():
            path.write_bytes(before)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.again != "nothing"], ids=lambda row: f"{row.run}-{row.edit}"
)
def test_an_edit_runs_again_what_the_page_says(row, planner, finished, tmp_path):
    run = finished(row.run)
    with edited(planner, run, tmp_path, [row.edit]) as settings:
        found = again(planner, run, settings)
    assert found == said(row.again, THEN) & (run.rules | found)


@pytest.mark.parametrize("name", RUNS)
def test_edits_that_run_nothing_again(name, planner, finished, tmp_path):
    """All at once: where one of them ran something, so would all."""
    edits = [row.edit for row in ROWS if (row.run, row.again) == (name, "nothing")]
    run = finished(name)
    for part in (planner.root / "scripts", planner.root / "rules", planner.root / "envs", run.directory):
        for path in part.rglob("*"):
            if path.is_file() and ".snakemake" not in path.parts and "results" not in path.parts:
                path.touch()
    with edited(planner, run, tmp_path, edits) as settings:
        assert again(planner, run, settings) == set()


@pytest.mark.parametrize(("file", "what", "text"), FILES, ids=" ".join)
def test_a_file_of_a_run_runs_again_what_the_page_says(file, what, text, planner, finished):
    run = finished("paper" if file.startswith("`weights") else "manifest")
    path = run.directory / file.strip("`")
    content, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    if what == "deleted":
        path.unlink()
    else:
        path.write_bytes(content + {"edited": b"\n", "touched": b""}[what])
    try:
        assert again(planner, run) == said(text, THEN) & run.rules
    finally:
        path.write_bytes(content)
        os.utime(path, ns=times)


def test_a_copy_without_times_runs_nothing_again_and_a_real_run_is_no_other(workflow_run, tmp_path, dry_run):
    clone = copy_repository(tmp_path / "clone")
    for path in filter(Path.is_file, clone.rglob("*")):
        path.touch()
    run = tmp_path / "run"
    shutil.copytree(workflow_run, run, symlinks=True, copy_function=shutil.copy)
    assert dry_run(run, root=clone) == {}
    row = next(row for row in ROWS if row.keys == ("masks",))
    write_settings(run, merged(SLICE, yaml.safe_load(row.edit)))
    left_out = {"ablation_table", "ablation_charts", "dataset_layout"} | following(
        {"training_run", "review_pages", "paraphrase_instructions"}, THEN
    )
    assert dry_run(run, root=clone).keys() - TARGETS == (said(row.again, THEN) | {"tables_truth"}) - left_out


BY_OTHER_MEANS = (
    "thresholds", "training.runs", "dataset.released_layout", "inference.split", "inference.paraphrases",
    "evaluation.reviewed", "evaluation.predictions", "review.thresholds", "review.split", "review.sheets",
)  # fmt: skip
"""Keys that decide which jobs there are, not what a job does."""


def keys(section: dict, above: str = "") -> Iterator[tuple[str, dict, str]]:
    """Yield the name of every key, with the mapping it is in."""
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", section, name


def test_every_key_belongs_to_its_row(finished):
    """Each key is changed by itself: the rules whose options it changes are those of the nearest row of the page."""
    run = finished("manifest")
    uses = [
        (rule, section, name)
        for rule, body in re.findall(
            r"^rule (\w+):\n(.*?)(?=^\S|\Z)",
            "".join(path.read_text() for path in (ROOT / "rules").rglob("*.smk")),
            re.M | re.S,
        )
        for section, name in re.findall(r'PLAN\.options\["(\w+)"\](?:\["(\w+)"\])?', body)
    ]
    rows = {key: row.again for name in ("embedded", "manifest") for row in ROWS if row.run == name for key in row.keys}
    settings = read(RUNS["manifest"])
    plain = settings.model_dump(mode="json", by_alias=True)
    names = {name: getattr(settings, name) for name in plain}
    options = partial(stage_options, SimpleNamespace(**names, model_dump=lambda **_: deepcopy(plain)))
    before, seen = options(), 0
    for key, section, name in keys(plain):
        if name == "engine" or key.startswith(BY_OTHER_MEANS):
            continue
        kept, section[name] = section[name], ["another"] if section[name] != ["another"] else []
        after = options()
        section[name] = kept
        changed = {
            rule for rule, stage, part in uses
            if (before[stage][part] != after[stage][part] if part else before[stage] != after[stage])
        }  # fmt: skip
        row = next(
            row for length in range(key.count(".") + 1, 0, -1) if (row := ".".join(key.split(".")[:length])) in rows
        )
        assert following(changed & run.rules, THEN) & run.rules == said(rows[row], THEN) & run.rules, key
        seen += 1
    assert seen > 100


def test_a_changed_cohort_is_not_run_blindly(planner, tmp_path):
    run = pretend(planner, tmp_path, RUNS["manifest"])
    with open(tmp_path / "manifest.csv", "a") as file:
        file.write("s,s,j,j.png,s.txt\n")
    done = snakemake(tmp_path, "all", check=False, root=planner.root)
    assert done.returncode
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("cxr-ils: ")]
    assert re.search(r"16 finished jobs .*run `snakemake cohort` with the same options first", sentence), sentence
    assert not (tmp_path / "logs/cohort/cohort.log").read_text()  # empty since --touch
    jobs = planner.jobs(tmp_path, run.settings, "--", *ASKED)
    assert sum("shard" in job.wildcards for job in jobs) == 16


@pytest.mark.parametrize(
    ("forced", "output", "refused"), [(False, "made", True), (True, "made", False), (False, "missing", False)]
)
def test_what_is_asked_for_or_not_made_yet_is_run(tmp_path, forced, output, refused):
    """``--forcerun cohort_shards`` is an order, and a run that has made no shard loses none."""
    (tmp_path / "made").touch()
    jobs = [
        Planned("cohort_shards", {}, [], by_shard=False, forced=forced),
        Planned("a", {}, [str(tmp_path / output)], by_shard=True, forced=False),
    ]
    with pytest.raises(UserError, match="and 1 finished jobs") if refused else nullcontext():
        refuse_blind_rerun(jobs)


SHARDED = ("frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks")
MERGES = (
    *SHARDED, "masks_index", "dataset", "dataset_pairs", "tables_counts", "tables_recall", "figures_panels",
    "figures_charts", "figures_recall", "page_pictures", "page_index", "page_costs", "reports_read",
)  # fmt: skip


def test_new_studies_run_just_the_shards_they_fall_in(workflow_run, planner, tmp_path):
    """A run that lacked a subject, and got it: the same bytes as the run that had it from the start."""
    run = tmp_path / "run"
    shutil.copytree(workflow_run, run, symlinks=True)
    path = run / "results/phantom/manifest.csv"
    whole = pl.read_csv(path, infer_schema=False)
    cohort = read_table(run / "results/cohort/00.parquet")
    named = SLICE | {"cohort": {"source": "manifest", "manifest": str(path.relative_to(run)), "shards": 3}}
    settings = write_settings(run, named) / "mine.yaml"
    whole.filter(pl.col("subject_id") != cohort["subject_id"][0]).write_csv(path)
    snakemake(run, "cohort")
    # what followed without that subject: nothing that the run with it could take over
    ours = re.compile(r"00\.|(index|findings|excluded|train|validate|test)\.")
    for stage in (*SHARDED, "dataset"):
        for made in filter(lambda path: ours.match(path.name), (run / "results" / stage).rglob("*.*")):
            times = made.stat().st_atime_ns, made.stat().st_mtime_ns
            made.write_bytes(b"")
            os.utime(made, ns=times)
    planner.run(run, settings, "--touch", "--", "all")
    assert planner.jobs(run, settings, "--", "all") == []
    whole.write_csv(path)
    snakemake(run, "cohort")
    jobs = planner.jobs(run, settings, "--", "all")
    shards = {(job.rule, job.wildcards["shard"]) for job in jobs if "shard" in job.wildcards}
    assert shards == {(f"{stage}_shard", "00") for stage in SHARDED} | {("masks_sweep", "00")}
    merges = Counter(job.rule for job in jobs if "shard" not in job.wildcards and job.rule not in TARGETS)
    assert merges == dict.fromkeys(MERGES, 1)
    snakemake(run, "results/dataset/default/train.jsonl")
    assert pair_lines(run) == pair_lines(workflow_run)
    assert arrays(run) == arrays(workflow_run)


@pytest.mark.parametrize(("transport", "gpus", "mb"), [("offline", {"1"}, "64000"), ("server", {"0"}, "4000")])
def test_a_net_asks_for_one_gpu_and_a_training_for_all(planner, finished, tmp_path, transport, gpus, mb):
    model = {"llm": {"transport": transport, "execution": {"server": "http://gpu07:8000/v1"}}}
    settings = write_settings(tmp_path, merged(RUNS["paper"], {"compute": {"gpus": 2}, "reports": model})) / "mine.yaml"
    jobs = planner.jobs(finished("paper").directory, settings, "--forceall", "--", *ASKED)
    asked = {job.rule: job.resources["gpu"] for job in jobs if job.resources.get("gpu", "0") != "0"}
    reports = [job.resources for job in jobs if job.rule in ("reports_structured", "reports_mapping")]
    assert {job["gpu"] for job in reports} == gpus
    assert {job["mem_mb"] for job in reports} == {mb}
    nets = {rule: number for rule, number in asked.items() if not rule.startswith("reports_")}
    asking = ("inference_run", "inference_paraphrased", "paraphrase_wordings")
    assert nets == dict.fromkeys((*asking, *(f"{name}_shard" for name in NETS)), "1") | {"training_run": "2"}
