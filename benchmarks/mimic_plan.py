"""Measure Snakemake's planning at the size of MIMIC-CXR: jobs, seconds and memory, on the simulated cohort of
`mimic.py`.

    python benchmarks/mimic_plan.py [--folder mimic-plan] [--images 377110] [--bare 20000]

The cohort is written to ``--folder`` and reused in later calls. Each of these is measured in a separate process:

* the stage cohort with the official tables, alone and as ``snakemake cohort``, and on ``--bare`` images without tables,
  for which all headers are read;
* the parsing of the Snakefile, without the start of Python and Snakemake;
* ``snakemake -n`` of the whole workflow after the stage cohort, with ten threshold sets in 64 shards, locally and with
  the profile slurm, and again when all outputs exist (empty files, marked as done with ``--touch``);
* ``snakemake -n semisyn_selection`` with the paper's four pipelines in the sequential search, in 64 shards;
* ``snakemake -n radvlm`` in 64 shards, with the cohort alone and with the seven external sources (empty tables). The
  time of each additional job is compared with that of a job in the dry run of the whole workflow.

Core seconds are those of the process and its children. Memory is that of the largest process. The exit status is 1 if a
limit is exceeded, or if the numbers of jobs or images differ from the expected numbers. The limits are 1 core second
for parsing, 10 core seconds and 500 MB for a dry run (1,000 MB for SemiSynCXR), and 1.2 times a job of ILS for an
additional job of RadVLM.
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
"""Threshold sets. With `default` and `half`, there are ten."""
PIPELINES = ["roentgen_before", "roentgen_after", "roentgen_cfg", "radedit"]
"""The paper's four pipelines of SemiSynCXR."""
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
"""{RadVLM's external source, named like its format: tables in its folder}."""
TRIES = 3
"""Number of measurements of RadVLM's dry runs; the fastest counts."""
DEARER = 1.2
"""Maximum time of an additional job of RadVLM's sources, relative to a job of ILS."""
MEMORY_MB, SEMISYN_MEMORY_MB, SECONDS, PARSE_SECONDS = 500, 1000, 10, 1
"""Limits of a dry run (MB, MB for SemiSynCXR, core seconds), and of parsing (core seconds).

SemiSynCXR's plan needs more memory, because it loads the rules engine to read some reports.
"""


class Cost(NamedTuple):
    """Cost of a command: wall seconds, core seconds, MB, and its output."""

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
"""Program of a small process that starts and measures the command. On Linux, the peak memory of a process includes that
of the process that started it."""


def measured(*command: object) -> Cost:
    """Run a command and return its cost. Raises SystemExit with the end of its output if it fails."""
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
    """Run a command, and once more if it exceeds the time limit, because the speed varies; return the faster run."""
    cost = measured(*command)
    return cost if cost.core_s <= SECONDS else min(cost, measured(*command), key=lambda one: one.core_s)


def settings(root: Path) -> dict:
    """Return the settings of the plan: ten threshold sets, with a dataset for each."""
    return {
        "cohort": {"source": "mimic", "root": str(root)},
        "thresholds": {"sets": SETS, "build": ["default", "half", *SETS]},
    }


def selection_settings(root: Path, model: Path) -> dict:
    """Return the settings of SemiSynCXR's search; ``model``: folder to create in place of a diffusion model."""
    model.mkdir(parents=True, exist_ok=True)
    editing = {"grid": {"pipelines": PIPELINES}, "diffusion": {"model": str(model)}}
    return {
        "cohort": {"source": "mimic", "root": str(root)},
        "semisyn": {"editing": editing, "selection": {"configs": [], "search": "sequential"}},
    }


def radvlm_settings(root: Path, trees: Path, external: bool) -> dict:
    """Return the settings of RadVLM with the cohort alone or with all sources; ``trees``: folder of the sources."""
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
    """Return {rule: number of jobs} from the output of a dry run."""
    table = re.search(r"^job +count\n-.*\n((?:\w+ +\d+\n)+)", printed, flags=re.MULTILINE)
    pairs = (line.split() for line in table.group(1).splitlines()) if table else ()
    return {rule: int(count) for rule, count in pairs if rule != "total"}


def asked_of(printed: str) -> dict[str, tuple[int, int]]:
    """Return {rule: (MB, minutes) that a job requests} from the output of a dry run."""
    found = {}
    for rule, body in re.findall(r"^\s*(?:local)?rule (\w+):\n((?:\s+\w+:.*\n)+)", printed, flags=re.MULTILINE):
        numbers = dict(re.findall(r"\b(mem_mb|runtime)=(\d+)", body))
        found[rule] = int(numbers.get("mem_mb", 0)), int(numbers.get("runtime", 0))
    return found


def outputs_of(printed: str) -> list[str]:
    """Return the output files of all jobs from the output of a dry run."""
    return [name for line in re.findall(r"^\s+output: (.*)$", printed, flags=re.MULTILINE) for name in line.split(", ")]


def fake(folder: Path, outputs: list[str]) -> None:
    """Create every missing output as an empty file, or as a folder if its name has no suffix.

    The tables of source files that jobs have read get their true content, because the next run checks each of these
    files.
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
    """Write the table of the source files that a job has read: a shard's images or reports, else no files."""
    from cxr.base.source_files import state_row, write_states  # imported here: the other tasks need none of it
    from cxr.base.tables import read_table

    rows = []
    if table.parent.name in ("frames", "reports"):
        cohort = read_table(folder / "results/cohort" / table.name).filter(rank=0)
        columns = ("image_id", "path") if table.parent.name == "frames" else ("study_id", "report_path")
        rows = [state_row(*row) for row in cohort.select(columns).drop_nulls().iter_rows()]
    write_states(table, rows)


def expected_jobs(sets: int, shards: int = SHARDS) -> int:
    """Return the number of jobs of the whole workflow after the stage cohort, with engines that need no weights.

    Per shard: a job of each stage, of the sweep, and of each set's masks. Per set: the list of masks, the pairs and two
    figures. Once: a list for each stage, the results of the reports, the removed names, counts, recall and three more
    tables, three parts of the page, and the target.
    """
    return shards * (len(PER_SHARD) + 1 + sets) + 4 * sets + len(PER_SHARD) + 1 + 2 + 3 + 3 + 1


def cohort_stage(root: str, out: str) -> None:
    """Run the stage cohort on a folder, as its rule does; print {reason, or "accepted": number of images} as JSON."""
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
    """Print the core seconds that Snakemake needs to parse the Snakefile."""
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
    """Write a simulated cohort into ``folder`` unless it exists there; return its numbers of images and studies."""
    stamp = folder / "made.json"
    if not stamp.exists() or json.loads(stamp.read_text())["images"] != images:
        bare = () if tables else ("--no-tables",)
        cost = measured(sys.executable, ROOT / "benchmarks/mimic.py", folder, "--images", images, *bare)
        report.row(f"the files of {images:,} images", cost)
        stamp.write_text(cost.printed)
    return json.loads(stamp.read_text())


class Report:
    """Rows of the measurements, printed at once, and the limits that were exceeded."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        print(f"{'what':<58}{'wall s':>9}{'core s':>9}{'MB':>8}  limit")

    def row(self, title: str, cost: Cost, limit: str = "") -> None:
        """Print a row."""
        print(f"{title:<58}{cost.wall_s:>9.1f}{cost.core_s:>9.1f}{cost.mb:>8.0f}  {limit}", flush=True)

    def dry_run(self, title: str, cost: Cost, most_mb: int = MEMORY_MB) -> None:
        """Print a row of a dry run, and check its limits."""
        self.row(title, cost, f"{SECONDS} core s, {most_mb} MB")
        self.hold(cost.core_s <= SECONDS, f"{title} took {cost.core_s:.1f} core s, more than {SECONDS}")
        self.hold(cost.mb <= most_mb, f"{title} took {cost.mb:.0f} MB, more than {most_mb}")

    def hold(self, fine: bool, sentence: str) -> None:
        """Record ``sentence`` unless the limit is met."""
        if not fine:
            self.broken.append(sentence)


def cohort_rows(folder: Path, report: Report, images: int, bare: int) -> None:
    """Measure the stage cohort, and compare its counts with those of the simulation."""
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
    """Measure the parsing and the dry runs; return the output of the first dry run."""
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
    """Measure the dry run of SemiSynCXR's search on the cohort that :func:`cohort_rows` made."""
    place = folder / "selection"
    place.mkdir(exist_ok=True)
    (place / "mine.yaml").write_text(json.dumps(selection_settings(folder / "mimic", place / "model")))
    cost = measured_dry_run(*snakemake(place, "-n", "--cores", 2, "semisyn_selection"))
    title = f"snakemake -n semisyn_selection, {sum(jobs_of(cost.printed).values()):,} jobs"
    report.dry_run(title, cost, SEMISYN_MEMORY_MB)


def radvlm_rows(folder: Path, report: Report) -> None:
    """Measure the dry runs of RadVLM without and with its external sources, and check the time of an additional job.

    All dry runs include the parsing, so the differences between them do not.
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
