"""Plan the workflow at the size of MIMIC-CXR: jobs, seconds and memory, on the simulated cohort of `mimic.py`.

    python benchmarks/mimic_plan.py [--folder mimic-plan] [--images 377110] [--bare 20000]

Makes the cohort in ``--folder`` (kept, and taken again), then measures, each in a process of its own:

* the stage cohort with the official tables, alone and as ``snakemake cohort``; and on ``--bare`` images without tables,
  of which all headers are read;
* the parse of the workflow: from the Snakefile's first line to its last, without Python's and Snakemake's own start;
* ``snakemake -n`` of everything, with ten threshold sets in 64 shards, from the finished cohort on, locally and with
  the profile slurm; and the same when all is done (outputs of no bytes, marked as made with ``--touch``);
* ``snakemake -n semisyn_selection`` with the paper's four pipelines in the sequential search, in 64 shards;
* ``snakemake -n radvlm`` in 64 shards, of the cohort alone and with the seven external sources (folders with tables of
  no bytes): what each further job takes, beside a job of the dry run of everything.

Core seconds are those of the process and its children; memory is the largest process's (a child is never told smaller
than this process, which therefore holds no data). Ends with status 1 if the parse takes more than a core second, a dry
run more than 10 core seconds or 500 MB, if a job of RadVLM's sources takes more than 1.2 times one of ILS, or if there
are other jobs or images than are expected.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))

SETS = {f"ano{hundredth}": {"general": {"ano": hundredth / 100}} for hundredth in range(11, 19)}
"""With `default` and `half`, ten threshold sets."""
PIPELINES = ["roentgen_before", "roentgen_after", "roentgen_cfg", "radedit"]
"""The paper's four of SemiSynCXR."""
SHARDS = 64
PER_SHARD = ("frames", "reports", "organs", "anomaly", "anatomy", "boxes")
MIMIC_TABLES = ("mimic-cxr-2.0.0-chexpert.csv.gz", "mimic-cxr-2.0.0-split.csv.gz", "mimic-cxr-2.0.0-metadata.csv.gz")
EXTERNAL = {
    "mimic": MIMIC_TABLES,
    "chexpert": ("train.csv", "valid.csv", "test.csv"),
    "chexpert_plus": ("df_chexpert_plus_240401.csv", "chexbert_labels/report_fixed.json"),
    "vindr": ("annotations/annotations_train.csv", "annotations/annotations_test.csv"),
    "ms_cxr": ("MS_CXR_Local_Alignment_v1.1.0.csv",),
    "padchest_gr": ("master_table.csv", "grounded_reports_20240819.json"),
    "imagenome": ("silver_dataset/splits/train.csv", "silver_dataset/splits/images_to_avoid.csv"),
}
"""RadVLM's external sources, named like their formats, and tables in the folder of each."""
TRIES = 3
"""How often these dry runs are measured; the fastest counts."""
DEARER = 1.2
"""A job of RadVLM's sources takes at most so many times what one of ILS takes."""
MEMORY_MB, SEMISYN_MEMORY_MB, SECONDS, PARSE_SECONDS = 500, 1000, 10, 1
"""Limits of a dry run, and of the parse. Core seconds: those on the wall also tell of other programs.

SemiSynCXR's plan needs more memory: it reads some reports, for which it loads the rules engine.
"""


class Cost(NamedTuple):
    """What a command took: seconds, core seconds, MB, and what it printed."""

    wall_s: float
    core_s: float
    mb: float
    printed: str


WATCHER = """
import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:])
_, status, usage = os.wait4(process.pid, 0)
print(f"\\n{usage.ru_utime + usage.ru_stime} {usage.ru_maxrss}", end="")
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""A small process between: one that is started by a large one has the large one's memory for its peak, on Linux."""


def measured(*command: object) -> Cost:
    """Run a command. Raises SystemExit with the end of what it printed if it fails."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", WATCHER, *map(str, command)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    printed, _, numbers = done.stdout.rpartition("\n")
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{printed[-3000:]}")
    core_s, peak = map(float, numbers.split())
    return Cost(time.perf_counter() - began, core_s, peak / (2**20 if sys.platform == "darwin" else 2**10), printed)


def measured_dry_run(*command: object) -> Cost:
    """Run a command, and again if it exceeds the limit, because a machine's speed varies; return the faster run."""
    cost = measured(*command)
    return cost if cost.core_s <= SECONDS else min(cost, measured(*command), key=lambda one: one.core_s)


def settings(root: Path) -> dict:
    """Return the settings of the plan: ten threshold sets, the dataset of each made."""
    return {
        "cohort": {"source": "mimic", "root": str(root)},
        "thresholds": {"sets": SETS, "build": ["default", "half", *SETS]},
    }


def selection_settings(root: Path, model: Path) -> dict:
    """Return the settings of SemiSynCXR's search; ``model``: a folder that stands for the one of a diffusion model."""
    model.mkdir(parents=True, exist_ok=True)
    editing = {"grid": {"pipelines": PIPELINES}, "diffusion": {"model": str(model)}}
    return {
        "cohort": {"source": "mimic", "root": str(root)},
        "semisyn": {"editing": editing, "selection": {"configs": [], "search": "sequential"}},
    }


def radvlm_settings(root: Path, trees: Path, external: bool) -> dict:
    """Return the settings of RadVLM with the cohort alone, or with all sources; ``trees``: where their folders are."""
    for name, tables in EXTERNAL.items():
        for table in tables:
            (trees / name / table).parent.mkdir(parents=True, exist_ok=True)
            (trees / name / table).touch()
    held = {name: {"format": name, "path": str(trees / name)} for name in (EXTERNAL if external else ())}
    for name in {"ms_cxr", "imagenome"} & held.keys():
        held[name]["pictures"] = "mimic"
    return {
        "cohort": {"source": "mimic", "root": str(root)},
        "radvlm": {
            "sources": {"use": ["own", *held], "list": held},
            "instructions": {"mixes": {"all": {"preset": "paper_plus_ils" if external else "own"}}},
        },
    }


def snakemake(folder: Path, *arguments: object) -> list[object]:
    """Return the command that runs the workflow in ``folder``."""
    where = ("--directory", folder, "--configfile", folder / "mine.yaml")
    return [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile", *where, *arguments]


def jobs_of(printed: str) -> dict[str, int]:
    """Return {rule: jobs} from what a dry run prints."""
    table = re.search(r"^job +count\n-.*\n((?:\w+ +\d+\n)+)", printed, flags=re.MULTILINE)
    pairs = (line.split() for line in table.group(1).splitlines()) if table else ()
    return {rule: int(count) for rule, count in pairs if rule != "total"}


def asked_of(printed: str) -> dict[str, tuple[int, int]]:
    """Return {rule: (MB, minutes)} that a job asks for, from what a dry run prints."""
    found = {}
    for rule, body in re.findall(r"^\s*(?:local)?rule (\w+):\n((?:\s+\w+:.*\n)+)", printed, flags=re.MULTILINE):
        numbers = dict(re.findall(r"\b(mem_mb|runtime)=(\d+)", body))
        found[rule] = int(numbers.get("mem_mb", 0)), int(numbers.get("runtime", 0))
    return found


def outputs_of(printed: str) -> list[str]:
    """Return the outputs of all jobs of a dry run."""
    return [name for line in re.findall(r"^\s+output: (.*)$", printed, flags=re.MULTILINE) for name in line.split(", ")]


def fake(folder: Path, outputs: list[str]) -> None:
    """Make every output that is not there, empty (a folder where the name has no ending), in the order of the jobs.

    The tables of the images and reports that jobs have read are real: the next run looks at each of these files.
    """
    for name in outputs:
        path = folder / name
        if not path.exists():
            (path if not path.suffix else path.parent).mkdir(parents=True, exist_ok=True)
            if name.startswith("results/cohort/files_read/"):
                write_files_read(folder, path)
            elif path.suffix:
                path.touch()


def write_files_read(folder: Path, table: Path) -> None:
    """Write the table of the files that the job of a shard of frames or reports has read; an empty one for others."""
    from cxr.base.source_files import state_row, write_states  # imported here: the other tasks need none of it
    from cxr.base.tables import read_table

    rows = []
    if table.parent.name in ("frames", "reports"):
        cohort = read_table(folder / "results/cohort" / table.name).filter(rank=0)
        columns = ("image_id", "path") if table.parent.name == "frames" else ("study_id", "report_path")
        rows = [state_row(*row) for row in cohort.select(columns).drop_nulls().iter_rows()]
    write_states(table, rows)


def expected_jobs(sets: int, shards: int = SHARDS) -> int:
    """Return the jobs of everything from the finished cohort on, with engines that need no weights.

    A job a shard for each stage, for the sweep, and the masks of each set; the list of masks, the pairs and two figures
    a set; a list for each stage, what the reports gave and what was removed from them, counts and recall, three of the
    page, and the target itself.
    """
    return shards * (len(PER_SHARD) + 1 + sets) + 4 * sets + len(PER_SHARD) + 1 + 2 + 3 + 3 + 1


def cohort_stage(root: str, out: str) -> None:
    """Run the stage cohort on a tree, as its rule does; print how many images were accepted and excluded, by reason."""
    import polars as pl

    from cxr.base.jobs import settings_arguments
    from cxr.base.seeds import shard_names
    from cxr.imaging.cohort.make_cohort import run
    from cxr.workflow.params import stage_options
    from cxr.workflow.settings import read

    options = stage_options(read({"cohort": settings(Path(root))["cohort"]}))["cohort"]
    arguments = settings_arguments(run, options) | {"attrs": {}, "threads": 2}
    files = {"images": f"{out}/images.parquet", "excluded": f"{out}/excluded.parquet"}
    run(shards=[f"{out}/{name}.parquet" for name in shard_names(SHARDS)], **files, **arguments)
    reasons = pl.read_parquet(files["images"]).select(pl.col("reason").fill_null("accepted"))
    print(json.dumps(dict(reasons.group_by("reason").len().sort("reason").iter_rows())))


def parse(folder: str) -> None:
    """Print the core seconds that Snakemake takes from the Snakefile's first line to its last."""
    from snakemake import cli, workflow

    include, times = workflow.Workflow.include, []

    def timed(self: workflow.Workflow, *arguments: object, **named: object) -> None:
        began = time.process_time()
        include(self, *arguments, **named)
        times.append(time.process_time() - began)

    workflow.Workflow.include = timed
    try:
        cli.main([str(part) for part in snakemake(Path(folder), "--list")[3:]])
    except SystemExit:
        print(json.dumps(max(times)))


def make(folder: Path, images: int, tables: bool, report: "Report") -> dict:
    """Return the numbers of a simulated cohort, written into ``folder`` unless it is there already."""
    stamp = folder / "made.json"
    if not stamp.exists() or json.loads(stamp.read_text())["images"] != images:
        bare = () if tables else ("--no-tables",)
        cost = measured(sys.executable, ROOT / "benchmarks/mimic.py", folder, "--images", images, *bare)
        report.row(f"the files of {images:,} images", cost)
        stamp.write_text(cost.printed)
    return json.loads(stamp.read_text())


class Report:
    """Rows of what was measured, printed as they come."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        print(f"{'what':<58}{'wall s':>9}{'core s':>9}{'MB':>8}  limit")

    def row(self, title: str, cost: Cost, limit: str = "") -> None:
        """Print a row."""
        print(f"{title:<58}{cost.wall_s:>9.1f}{cost.core_s:>9.1f}{cost.mb:>8.0f}  {limit}", flush=True)

    def dry_run(self, title: str, cost: Cost, most_mb: int = MEMORY_MB) -> None:
        """Print a row of a dry run, and hold it to its limits."""
        self.row(title, cost, f"{SECONDS} core s, {most_mb} MB")
        self.hold(cost.core_s <= SECONDS, f"{title} took {cost.core_s:.1f} core s, more than {SECONDS}")
        self.hold(cost.mb <= most_mb, f"{title} took {cost.mb:.0f} MB, more than {most_mb}")

    def hold(self, fine: bool, sentence: str) -> None:
        """Note a limit that is broken."""
        if not fine:
            self.broken.append(sentence)


def cohort_rows(folder: Path, report: Report, images: int, bare: int) -> None:
    """Measure the stage cohort, and hold its counts to those of the simulation."""
    for name, count, tables in (("mimic", images, True), ("bare", bare, False)):
        cohort = make(folder / name, count, tables, report)
        cost = measured(sys.executable, __file__, "--task", "cohort_stage", folder / name, folder / "out" / name)
        how = "with tables" if tables else "headers alone"
        report.row(f"cohort, {count:,} images of {cohort['studies']:,} studies, {how}", cost, "minutes")
        told, simulated = json.loads(cost.printed.splitlines()[-1]), cohort["expected"]
        report.hold(told == simulated, f"the cohort stage says {told}, simulated were {simulated}")
    (folder / "mine.yaml").write_text(json.dumps(settings(folder / "mimic")))
    shutil.rmtree(folder / "results", ignore_errors=True)
    shutil.rmtree(folder / ".snakemake", ignore_errors=True)
    report.row("snakemake --cores 2 cohort", measured(*snakemake(folder, "--cores", 2, "cohort")), "minutes")


def workflow_rows(folder: Path, report: Report) -> str:
    """Measure the parse and the dry runs; return what the first of them printed."""
    tries = [measured(sys.executable, __file__, "--task", "parse", folder) for _ in range(3)]
    best = min(float(cost.printed.splitlines()[-1]) for cost in tries)
    report.row(
        f"parse of the workflow: {best:.2f} core s; snakemake --list:", tries[-1], f"{PARSE_SECONDS} core s the parse"
    )
    report.hold(best <= PARSE_SECONDS, f"the parse took {best:.2f} core s, more than {PARSE_SECONDS}")
    expected = expected_jobs(2 + len(SETS))
    slurm = ("--profile", "slurm", "--sdm", "env-modules")
    printed = ""
    for what, arguments in (("", ("--cores", 2)), (" --profile slurm", slurm)):
        cost = measured_dry_run(*snakemake(folder, "-n", *arguments))
        jobs = sum(jobs_of(cost.printed).values())
        report.dry_run(f"snakemake -n{what}, {jobs:,} jobs", cost)
        report.hold(jobs == expected, f"snakemake -n{what} has {jobs} jobs, expected were {expected}")
        printed = printed or cost.printed
    fake(folder, outputs_of(printed))
    measured(*snakemake(folder, "--touch", "--cores", 64))
    cost = measured_dry_run(*snakemake(folder, "-n", "--cores", 2))
    report.dry_run("snakemake -n when all is done", cost)
    report.hold(not jobs_of(cost.printed), "a finished plan has jobs to run")
    return printed


def selection_rows(folder: Path, report: Report) -> None:
    """Measure the dry run of SemiSynCXR's search, on the cohort of the other rows."""
    place = folder / "selection"
    place.mkdir(exist_ok=True)
    (place / "mine.yaml").write_text(json.dumps(selection_settings(folder / "mimic", place / "model")))
    cost = measured_dry_run(*snakemake(place, "-n", "--cores", 2, "semisyn_selection"))
    title = f"snakemake -n semisyn_selection, {sum(jobs_of(cost.printed).values()):,} jobs"
    report.dry_run(title, cost, SEMISYN_MEMORY_MB)


def radvlm_rows(folder: Path, report: Report) -> None:
    """Measure the dry runs of RadVLM without and with its external sources, and hold each further job to one of ILS.

    What the parse takes is in all dry runs; differences leave it out.
    """
    costs = {}
    for name, told in (
        ("start", None), ("ils", settings(folder / "mimic")),
        ("own", radvlm_settings(folder / "mimic", folder / "trees", False)),
        ("external", radvlm_settings(folder / "mimic", folder / "trees", True)),
    ):  # fmt: skip
        place = folder / f"radvlm_{name}"
        place.mkdir(exist_ok=True)
        (place / "mine.yaml").write_text(json.dumps(told or settings(folder / "mimic")))
        target = "all" if name == "ils" else "radvlm"
        words = snakemake(place, "--list") if name == "start" else snakemake(place, "-n", "--cores", 2, target)
        tries = [measured(*words) for _ in range(TRIES)]
        costs[name] = min(tries, key=lambda one: one.core_s)
    jobs = {name: sum(jobs_of(cost.printed).values()) for name, cost in costs.items()}
    report.dry_run(f"snakemake -n radvlm, the cohort alone, {jobs['own']:,} jobs", costs["own"])
    report.dry_run(f"snakemake -n radvlm, seven external sources, {jobs['external']:,} jobs", costs["external"])
    ils = (costs["ils"].core_s - costs["start"].core_s) / jobs["ils"]
    further = (costs["external"].core_s - costs["own"].core_s) / (jobs["external"] - jobs["own"])
    words = f"a further job takes {1000 * further:.1f} core ms, a job of ILS {1000 * ils:.1f}"
    print(words)
    report.hold(further <= DEARER * ils, f"of RadVLM's sources {words}: more than {DEARER} times")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=ROOT / "mimic-plan")
    parser.add_argument("--images", type=int, default=377_110)
    parser.add_argument("--bare", type=int, default=20_000, help="images of the cohort without tables")
    parser.add_argument("--task", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        globals()[given.task[0]](*given.task[1:])
        return
    folder = given.folder.resolve()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; in {folder}")
    report = Report()
    cohort_rows(folder, report, given.images, given.bare)
    printed = workflow_rows(folder, report)
    selection_rows(folder, report)
    radvlm_rows(folder, report)
    asked = asked_of(printed)
    print(f"\n{'rule':<20}{'jobs':>8}{'MB a job':>10}{'minutes at most':>17}")
    for rule, count in jobs_of(printed).items():
        print(f"{rule:<20}{count:>8}{asked[rule][0]:>10}{asked[rule][1]:>17}")
    print("\nSeconds of a job, hours and disk of everything: python benchmarks/scale.py")
    if report.broken:
        raise SystemExit("broken: " + "; ".join(report.broken))


if __name__ == "__main__":
    main()
