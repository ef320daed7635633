"""What an edit runs again, and nothing else: every row of regeneration.yaml is tried."""

import json
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import polars as pl
import pytest
import yaml

import parsed
from conftest import ROOT, SLICE, every, snakemake, write_settings
from cxr.base.settings import Section
from cxr.base.source_files import read_state, write_states
from cxr.base.tables import read_table
from cxr.imaging.cohort.make_cohort import HEADER_BYTES
from cxr.imaging.weights.catalogue import list_placed_files
from cxr.radvlm.evaluation.annotate_radgraph import PLACED
from cxr.workflow.code_digest import digested_files
from cxr.workflow.freshness import blind_reruns
from cxr.workflow.params import stage_options
from cxr.workflow.settings import Settings, read
from cxr.workflow.snakemake_compat import TARGET_DONE, Planned
from planner import Job, Planner, jobs_of
from whole_runs import arrays, copy_repository, pair_lines

TABLE = yaml.safe_load((ROOT / "tests/workflow/regeneration.yaml").read_text(encoding="utf-8"))
THEN = {rule: set(readers) for rule, readers in TABLE["follows"].items()}
RUNS = {name: run["settings"] for name, run in TABLE["runs"].items()}
QUICK_RUNS = ("manifest",)


def for_runs(*cases: tuple) -> list:
    """Return a test's cases, each of which begins with a run's name; those of long runs are slow."""
    return [pytest.param(*case, marks=[] if case[0] in QUICK_RUNS else [pytest.mark.slow]) for case in cases]


EACH_RUN = for_runs(*((name,) for name in RUNS))
ASK = {name: run.get("ask") for name, run in TABLE["runs"].items()}
TARGETS = {name for name, rule in parsed.rules().items() if rule.target}
"""Rules that do nothing themselves."""
NETS = ("organs", "anomaly", "anatomy", "boxes")
ASKED = ("all", "ablation", "paraphrase", "inference", "evaluation", "review_merge")


@dataclass(frozen=True)
class Row:
    """One row of the table: an edit, of settings or of a file of the repository, and the rules that it runs again."""

    run: str
    keys: tuple[str, ...]
    edit: dict | str
    again: frozenset[str]

    def __str__(self) -> str:
        return f"{self.run}-{self.edit if isinstance(self.edit, str) else json.dumps(self.edit)}"


def following(rules: set[str]) -> set[str]:
    """Return the rules and all that follow from them."""
    seen: set[str] = set()
    waiting = list(rules)
    while waiting:
        if (rule := waiting.pop()) not in seen:
            seen.add(rule)
            waiting += THEN.get(rule, ())
    return seen


def named(cells: list[str]) -> frozenset[str]:
    """Return the rules that a cell names: ``rule`` alone, ``rule+`` with what follows."""
    plain = {cell.removesuffix("+") for cell in cells}
    return frozenset(plain | following({cell.removesuffix("+") for cell in cells if cell.endswith("+")}))


ROWS = [
    *(
        Row(name, tuple(row["keys"]), row["edit"], named(row["again"]) - named(row.get("but", [])))
        for name, run in TABLE["runs"].items()
        for row in run["edits"]
    ),
    *(Row("manifest", (), file, named(again)) for file, again in TABLE["repository"].items()),
]


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
    asked: tuple[str, ...]

    @property
    def settings(self) -> Path:
        return self.directory / "mine.yaml"


@pytest.fixture(scope="module")
def finished(planner, tmp_path_factory) -> Callable[[str], Run]:
    """Return a function that gives one of ``RUNS``, of empty files that ``snakemake --touch`` takes for results."""
    base = tmp_path_factory.mktemp("finished")

    @cache
    def finish(name: str) -> Run:
        return pretend(planner, base / name, RUNS[name], tuple(ASK[name] or ASKED))

    return finish


def pretend(planner: Planner, directory: Path, settings: dict, asked: tuple[str, ...] = ASKED) -> Run:
    """Make a run of empty files for which Snakemake has the records of a real one, and tables of the files it read."""
    write_settings(directory, settings)
    (directory / "manifest.csv").write_text("subject_id,study_id,image_id,image_path,report_path\ns,s,i,i.png,s.txt\n")
    (directory / "i.png").write_bytes(b"image" * HEADER_BYTES)
    (directory / "s.txt").write_text("No pneumothorax.\n")
    (directory / "findings.yaml").write_text("findings: {}\n")
    weights = (name for names in list_placed_files("weights").values() for name in names)
    for path in (directory / name for name in (*weights, *(f"radgraph-xl/{one}" for one in PLACED))):
        path.parent.mkdir(exist_ok=True, parents=True)
        path.touch()
    jobs = planner.jobs(directory, directory / "mine.yaml", "--", *asked)
    for path in (directory / name for job in jobs for name in job.output):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch() if path.suffix else path.mkdir()
    for table in (directory / FILES).rglob("*.parquet"):
        read = READ.get(table.relative_to(directory / FILES).as_posix())
        row = read and ("s", *read, *read_state(str(directory / read[0]), read[1]))
        write_states(table, [row] if row else [])
    planner.run(directory, directory / "mine.yaml", "--touch", "--forceall", "--", *asked)
    return Run(directory, rules(jobs), asked)


FILES = "results/cohort/files_read"
READ = {
    "cohort.parquet": ("i.png", HEADER_BYTES),
    "frames/00.parquet": ("i.png", None),
    "reports/00.parquet": ("s.txt", None),
    "reports_structured/all.parquet": ("s.txt", None),
}
"""Tables in that folder that name a file which a job has read, and the leading bytes of it that count."""


def merged(one: dict, other: dict) -> dict:
    """Lay one mapping over another, as configuration files are."""
    return one | {
        key: merged(one[key], value) if isinstance(value, dict) and isinstance(one.get(key), dict) else value
        for key, value in other.items()
    }


def named_rule(job: Job) -> str:
    """Return the rule of a job; of the rule for all stages, ``exclusions``, with the stage."""
    return f"{job.rule}.{job.wildcards['stage']}" if "stage" in job.wildcards else job.rule


def rules(jobs: list[Job]) -> set[str]:
    """Return the rules that do something."""
    return {named_rule(job) for job in jobs} - TARGETS


def again(planner: Planner, run: Run, settings: Path | None = None) -> set[str]:
    return rules(planner.jobs(run.directory, settings or run.settings, "--", *run.asked))


def test_the_page_for_people_is_one_page():
    assert len((ROOT / "docs/explanation/regeneration.md").read_text(encoding="utf-8").splitlines()) <= 40


@pytest.mark.parametrize("name", EACH_RUN)
def test_a_finished_run_has_nothing_to_do(name, planner, finished):
    assert again(planner, finished(name)) == set()


REMARK = b"\n# edited\n"
CHANGES = {".py": b"\nEDITED = 1\n", ".yaml": b"\nedited: 1\n"}
"""What changes the meaning of code; of other files every byte counts (weights.yaml is read at the parse)."""


@contextmanager
def edited(planner: Planner, run: Run, tmp_path: Path, edits: list[dict | str]) -> Iterator[Path]:
    """Make edits, of settings or at the end of files of the repository; yield the settings. Files are put back."""
    settings, files = json.loads(run.settings.read_text()), {}
    for edit in edits:
        if isinstance(edit, str):
            files[planner.root / edit] = (planner.root / edit).read_bytes()
        else:
            settings = merged(settings, edit)
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


def tried() -> list:
    """Return the rows that run something. The quick tests plan every twelfth row of the quick runs. Two tests below
    hold all keys of the settings and all files of the code against the table, without Snakemake.
    """
    rows = [row for row in ROWS if row.again]
    return [
        pytest.param(row, id=str(row), marks=[pytest.mark.slow] if number % 12 or row.run not in QUICK_RUNS else [])
        for number, row in enumerate(rows)
    ]


@pytest.mark.parametrize("row", tried())
def test_an_edit_runs_again_what_the_table_says(row, planner, finished, tmp_path):
    run = finished(row.run)
    with edited(planner, run, tmp_path, [row.edit]) as settings:
        found = again(planner, run, settings)
    assert found == row.again & (run.rules | found)


@pytest.mark.parametrize("name", EACH_RUN)
def test_edits_that_run_nothing_again(name, planner, finished, tmp_path):
    """All at once: where one of them ran something, so would all."""
    edits = [row.edit for row in ROWS if row.run == name and not row.again]
    run = finished(name)
    for part in (planner.root / "scripts", planner.root / "rules", planner.root / "envs", run.directory):
        for path in part.rglob("*"):
            if path.is_file() and ".snakemake" not in path.parts and "results" not in path.parts:
                path.touch()
    with edited(planner, run, tmp_path, edits) as settings:
        assert again(planner, run, settings) == set()


@pytest.mark.parametrize("row", every(3, TABLE["files"]), ids=lambda row: f"{row['file']} {row['act']}")
def test_a_file_of_a_run_runs_again_what_the_table_says(row, planner, finished):
    run = finished(row["run"])
    path = run.directory / row["file"]
    content, times = path.read_bytes(), (path.stat().st_atime_ns, path.stat().st_mtime_ns)
    if row["act"] == "deleted":
        path.unlink()
    else:
        path.write_bytes(content + {"edited": b"\n", "touched": b""}[row["act"]])
    try:
        assert again(planner, run) == named(row["again"]) & run.rules
    finally:
        path.write_bytes(content)
        os.utime(path, ns=times)


@pytest.mark.slow
def test_a_copy_without_times_runs_nothing_again_and_a_real_run_is_no_other(workflow_run, tmp_path, dry_run):
    clone = copy_repository(tmp_path / "clone")
    for path in filter(Path.is_file, clone.rglob("*")):
        path.touch()
    run = tmp_path / "run"
    shutil.copytree(workflow_run, run, symlinks=True, copy_function=shutil.copy)
    assert dry_run(run, root=clone) == {}
    row = next(row for row in ROWS if row.keys == ("dataset",))
    write_settings(run, merged(SLICE, row.edit))
    left_out = {"ablation_table", "ablation_charts", "dataset_layout"} | following(
        {
            "training_run", "review_pages", "paraphrase_instructions", "medground_sources_cohort", "radvlm_sources_own",
            "radvlm_evaluation_ils",
        }
    )  # fmt: skip
    again = {rule.partition(".")[0] for rule in row.again}
    assert dry_run(run, root=clone).keys() - TARGETS == (again | {"tables_truth"}) - left_out


BY_OTHER_MEANS = (
    "thresholds", "training.runs", "dataset.mimic_ils_layout", "inference.split", "inference.paraphrases",
    "evaluation.reviewed", "evaluation.predictions", "review.thresholds", "review.split", "review.sheets",
    "review.items", "review.rule",
)  # fmt: skip
"""Keys that decide which jobs there are, not what a job does."""


def keys(section: dict, above: str = "") -> Iterator[tuple[str, dict, str]]:
    """Yield the name of every key, with the mapping it is in."""
    for name, value in section.items():
        if isinstance(value, dict) and value:
            yield from keys(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", section, name


SISTERS = {
    "realism": ("realism", "selection", "readers", "prompts", "placement", "healthy", "editing"),
    "detectors": ("detection",),
    "semisyn": ("priors",),
}
"""Sections of SemiSynCXR whose every key is held against the rows of a run. Of others the rows alone are tried: what
a detector or an export is told depends on which it is, so that the settings of all are the options of no rule."""
ELSEWHERE = (
    "semisyn.healthy.chexpert", "semisyn.healthy.labels", "semisyn.healthy.table", "semisyn.readers.sheets",
    "semisyn.realism.reference", "semisyn.realism.features", "semisyn.realism.clip", "semisyn.prompts.reference",
    "semisyn.readers.reference", "semisyn.readers.experts", "semisyn.selection.configs", "semisyn.selection.search",
    "semisyn.selection.parts", "semisyn.editing.configs", "semisyn.editing.choice",
    "semisyn.editing.grid", "semisyn.editing.diffusion", "semisyn.editing.dtype",
    "semisyn.editing.autoencoder", "semisyn.priors.source",
    "semisyn.detection.predictions",
)  # fmt: skip
"""Keys that name an input of a rule, decide which jobs there are, or are of an engine that the run has not."""


def held(run: str, key: str) -> bool:
    """Tell whether every rule of a key is in a run, so that its row can be tried."""
    if run == "manifest":  # a bare run has no rules of SemiSynCXR
        # the shares of the splits are refused one without the others: their row's edit has all three
        return not key.startswith((*BY_OTHER_MEANS, "cohort.split.", "semisyn."))
    return key.startswith(tuple(f"semisyn.{stage}." for stage in SISTERS[run])) and not key.startswith(ELSEWHERE)


@pytest.mark.parametrize(
    ("name", "runs", "least"),
    for_runs(
        ("manifest", ("embedded", "manifest"), 100), ("realism", ("semisyn", "realism"), 24),
        ("semisyn", ("semisyn",), 2), ("detectors", ("detectors",), 0),
    ),
)  # fmt: skip
def test_every_key_belongs_to_its_row(name, runs, least, finished, monkeypatch):
    """Each key is changed by itself: the rules whose options it changes are those of the nearest row."""
    run, working = finished(name), parsed.working()
    uses = [(rule, *use.partition(".")[::2]) for rule in run.rules if rule in working for use in working[rule].options]
    rows = {key: row.again for each in runs for row in ROWS if row.run == each for key in row.keys}
    plain = read(RUNS[name]).as_dict()
    monkeypatch.setattr(Section, "__post_init__", lambda section: None)  # contradictions are another test's
    before, seen = stage_options(Settings.from_dict(plain)), 0
    for key, section, last in keys(plain):
        if last == "engine" or not held(name, key):
            continue
        kept = section[last]
        section[last] = "another" if isinstance(kept, str) else ["another"] if kept != ["another"] else []
        after = stage_options(Settings.from_dict(plain))
        section[last] = kept
        changed = {
            rule for rule, stage, part in uses
            if (before[stage][part] != after[stage][part] if part else before[stage] != after[stage])
        }  # fmt: skip
        row = next(
            row for length in range(key.count(".") + 1, 0, -1) if (row := ".".join(key.split(".")[:length])) in rows
        )
        assert following(changed) & run.rules == rows[row] & run.rules, key
        seen += 1
    assert seen > least


def test_every_file_is_code_of_the_rules_of_its_row(finished):
    """What a rule's digest reads, without Snakemake: an edited file runs the rules that read it and what follows."""
    run = finished("manifest")
    read_by = {
        rule.name: {path.relative_to(ROOT).as_posix() for path in digested_files("job.py", *rule.modules)}
        for rule in parsed.working().values()
    }
    rows = {
        name: named(again) for name, again in TABLE["repository"].items() if name.startswith(("scripts", "resourc"))
    }
    for file, again in rows.items():
        readers = {name for name in run.rules if file in read_by[name.partition(".")[0]]}
        assert following(readers) & run.rules == again & run.rules, file
    assert len(rows) > 60


@pytest.mark.slow
def test_a_copy_of_the_results_alone_is_compared_like_the_original(planner, finished, tmp_path):
    run = finished("manifest")
    copy = tmp_path / "copy"
    for part in (".snakemake", "logs"):
        assert (run.directory / part).exists()
    shutil.copytree(run.directory, copy, symlinks=True, ignore=shutil.ignore_patterns(".snakemake", "logs"))
    copied = Run(copy, run.rules, run.asked)
    assert again(planner, copied) == set()
    row = next(row for row in ROWS if row.run == "manifest" and row.keys == ("organs",))
    with edited(planner, copied, tmp_path / "edited", [row.edit]) as settings:
        assert again(planner, copied, settings) == row.again & run.rules
    words = ["--configfile", copied.settings, "--directory", copy, "--cores", 2]
    shutil.rmtree(copy / "results/records")
    for path in copy.rglob("*"):  # without records only times count, and an earlier test touches these files
        if path.is_file() and "results" not in path.parts:
            os.utime(path, (0, 0))
    for more in (["--dry-run"], []):
        status, printed = planner.ask([*words, *more, "--", *run.asked])
        assert status == 1
        refusals = re.findall(r"^cxr-ils: results/\S+ and \d+ other results: there is no record", printed, re.M)
        assert len(refusals) == 1, printed
        assert "Nothing to be done" not in printed
    planner.run(copy, copied.settings, "--touch", "--", *run.asked)
    assert again(planner, copied) == set()
    with edited(planner, copied, tmp_path / "again", [row.edit]) as settings:
        assert again(planner, copied, settings) == row.again & run.rules


def files_of(folder: Path) -> set[Path]:
    """Return the files of a run, without Snakemake's own."""
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != ".snakemake_timestamp")
    return {path for path in paths if ".snakemake" not in path.parts}


@pytest.mark.parametrize("name", EACH_RUN)
def test_no_result_of_the_present_settings_is_old(planner, finished, name):
    """Whatever the shards of a system: MedGround's and SemiSynCXR's trial jobs have numbers of their own."""
    run = finished(name)
    listed = planner.run(run.directory, run.settings, "--dry-run", "clean_old")
    assert "0 files (0.0 MB) of earlier settings would be removed" in listed, listed


@pytest.mark.slow
def test_results_of_earlier_settings_are_named_listed_and_removed(planner, tmp_path):
    sets = {"sets": {"other": {"general": {"ano": 0.2}}}, "build": ["default", "other"]}
    earlier = merged(RUNS["manifest"], {"cohort": {"shards": 12}, "thresholds": sets})
    settings = pretend(planner, tmp_path, earlier, ("all",)).settings
    for path in (log for job in planner.jobs(tmp_path, settings, "--forceall", "all") for log in job.log):
        (tmp_path / path).write_text("")
    write_settings(tmp_path, RUNS["manifest"])
    user_files = [tmp_path / f"results/reports/{name}" for name in ("05.jsonl.mine", "99.jsonl", "notes.txt")]
    for path in user_files:
        path.write_text("a user's own")
    # nothing is removed before a run with the new settings, whose shards are still those of the old ones
    status, printed = planner.ask(["--configfile", settings, "--directory", tmp_path, "--cores", 2, "clean_old"])
    assert status == 1
    refusal = "results/cohort/images.parquet was made with other settings, so it is not known which files are old"
    assert refusal in printed
    printed = planner.run(tmp_path, settings, "--touch", "--forceall", "--", "all")
    (number,) = re.findall(r"^(\d+) files \(\d+\.\d MB\) of earlier settings still lie in results/", printed, re.M)
    before = files_of(tmp_path)
    listed = planner.run(tmp_path, settings, "--dry-run", "clean_old").splitlines()
    old = {path for path in listed if path.startswith(("results/", "logs/")) and (tmp_path / path).exists()}
    assert len(old) == int(number)
    assert before == files_of(tmp_path)
    planner.run(tmp_path, settings, "clean_old")
    after = files_of(tmp_path)
    records = {path for path in before - after if "results/records" in path.as_posix()}
    removed = {path.relative_to(tmp_path).as_posix() for path in before - after - records}
    assert removed == {path for path in old if Path(path).suffix}  # the pretended folders are empty
    assert not [path for path in old if (tmp_path / path).exists()]
    shards = {path for path in old if re.search(r"/(0[2-9]|1[01])\.", path)}
    assert sorted(old - shards) == sorted(path for path in old - shards if re.search(r"/other(/|$|\.)", path))
    for stage in ("cohort", "frames", "reports", "masks/default"):
        names = {path.name.partition(".")[0] for path in (tmp_path / "results" / stage).glob("[0-9]*.*")}
        assert names == {"00", "01"} | ({"05", "99"} if stage == "reports" else set())
    assert not list((tmp_path / "results").glob("*/other"))
    assert all(path.exists() for path in user_files)
    assert again(planner, Run(tmp_path, set(), ("all",))) == set()
    assert "0 files (0.0 MB) of earlier settings would be removed" in planner.run(tmp_path, settings, "-n", "clean_old")


@pytest.mark.slow
def test_a_changed_cohort_is_not_run_blindly(planner, tmp_path):
    """The cohort is made first; where that fails, no shard is touched."""
    run = pretend(planner, tmp_path, RUNS["manifest"])
    with open(tmp_path / "manifest.csv", "a") as file:
        file.write("s,s,j,j.png,s.txt\n")
    (tmp_path / "i.png").unlink()
    printed = planner.run(tmp_path, run.settings, "--dry-run", "--no-hooks", "--", *ASKED)
    assert printed.count("the cohort has changed: a run makes it first and then plans again") == 1
    assert sum("shard" in job.wildcards for job in jobs_of(printed)) == 16
    done = snakemake(tmp_path, "all", check=False, root=planner.root)
    assert done.returncode == 1
    assert "the cohort has changed: it is made first, then all other jobs are planned" in done.stderr
    assert re.findall(r"Error in rule (\w+)", done.stderr) == ["cohort_shards"]  # no image exists
    assert "frames_shard" not in done.stderr


@pytest.mark.slow
def test_a_cohort_that_changes_all_the_time_is_refused(planner, tmp_path):
    pretend(planner, tmp_path, RUNS["manifest"])
    (tmp_path / "manifest.csv").write_text("subject_id,study_id,image_id,image_path,report_path\ns,s,j,j.png,s.txt\n")
    words = ["--configfile", str(tmp_path / "mine.yaml"), "--directory", str(tmp_path), "--cores", "2", "--", "all"]
    done = planner.start(words, os.environ | {TARGET_DONE: "cohort"})
    assert done.returncode == 1
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("cxr-ils: ")]
    assert "the cohort has changed again, and 16 finished jobs of its shards would run again" in sentence


@pytest.mark.parametrize(("forced", "output", "number"), [(False, "made", 1), (True, "made", 0), (False, "missing", 0)])
def test_what_is_asked_for_or_not_made_yet_is_run(tmp_path, forced, output, number):
    """``--forcerun cohort_shards`` is an order, and a run that has made no shard loses none."""
    (tmp_path / "made").touch()
    jobs = [
        Planned("cohort_shards", "imaging", {}, [], {}, num_gpus=0, forced=forced),
        Planned("a", "imaging", {}, [str(tmp_path / output)], {"shard": "00"}, num_gpus=0, forced=False),
    ]
    assert blind_reruns(jobs) == number


SHARDED = ("frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks")
MERGES = (
    *(f"exclusions.{stage}" for stage in (*SHARDED, "dataset")), "masks_index", "dataset_pairs", "tables_counts",
    "tables_recall", "figures_panels", "figures_charts", "page_pictures", "page_index", "page_costs",
    "privacy_table", "reports_read",
)  # fmt: skip


@pytest.mark.slow
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
    copy = shutil.copytree(run, tmp_path / "copy", symlinks=True)
    snakemake(run, "cohort")
    jobs = planner.jobs(run, settings, "--", "all")
    shards = {(job.rule, job.wildcards["shard"]) for job in jobs if "shard" in job.wildcards}
    assert shards == {(f"{stage}_shard", "00") for stage in SHARDED} | {("masks_sweep", "00")}
    merges = Counter(named_rule(job) for job in jobs if "shard" not in job.wildcards and job.rule not in TARGETS)
    assert merges == dict.fromkeys(MERGES, 1)
    # one command does both
    before = {shard: (copy / f"results/frames/{shard}.h5").stat().st_mtime_ns for shard in ("00", "01", "02")}
    snakemake(copy, "results/dataset/default/train.jsonl")
    after = {shard: (copy / f"results/frames/{shard}.h5").stat().st_mtime_ns for shard in before}
    assert [shard for shard in before if before[shard] != after[shard]] == ["00"]
    assert pair_lines(copy) == pair_lines(workflow_run)
    assert arrays(copy) == arrays(workflow_run)


@pytest.mark.parametrize(("transport", "gpus", "mb"), [("offline", {"1"}, "64000"), ("server", {"0"}, "4000")])
def test_a_net_asks_for_one_gpu_and_a_training_for_all(planner, finished, tmp_path, transport, gpus, mb):
    llm = {"transport": transport, "server": "http://gpu07:8000/v1"}
    settings = write_settings(tmp_path, merged(RUNS["paper"], {"compute": {"gpus": 2}, "llm": llm})) / "mine.yaml"
    jobs = planner.jobs(finished("paper").directory, settings, "--forceall", "--", *ASKED)
    asked = {job.rule: job.resources["gpu"] for job in jobs if job.resources.get("gpu", "0") != "0"}
    reports = [job.resources for job in jobs if job.rule in ("reports_structured", "reports_mapping")]
    assert {job["gpu"] for job in reports} == gpus
    assert {job["mem_mb"] for job in reports} == {mb}
    nets = {rule: number for rule, number in asked.items() if not rule.startswith("reports_")}
    asking = ["inference_run", "inference_paraphrased", *(["paraphrase_wordings"] if transport == "offline" else [])]
    assert nets == dict.fromkeys((*asking, *(f"{name}_shard" for name in NETS)), "1") | {"training_run": "2"}
