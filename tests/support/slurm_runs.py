"""Runs of the workflow on a SLURM cluster, and faults put into a copy of its scripts."""

import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import ROOT, SHARED, SLICE, write_settings
from whole_runs import copy_repository

TWO = SLICE | {"cohort": {"shards": 2}}
"""Settings of the runs: the slice in two shards, so that a group has two members."""
START = SHARED / "tools/slurm/start-slurm.sh"
"""Starts the test cluster where it is not running (and after its controller was killed)."""


def needs_slurm() -> None:
    """Skip visibly where no SLURM answers."""
    if not shutil.which("sbatch"):
        pytest.skip("no SLURM: sbatch is not installed")
    try:
        subprocess.run(["sinfo"], capture_output=True, timeout=20, check=True)
    except (subprocess.SubprocessError, OSError):
        pytest.skip("no SLURM: its controller does not answer")


def needs_test_cluster() -> None:
    """Skip visibly where the cluster is somebody's own, whose daemons and nodes no test may touch."""
    needs_slurm()
    conf = Path("/etc/slurm/slurm.conf")
    if not START.is_file() or not conf.is_file() or "one-node test cluster" not in conf.read_text():
        pytest.skip("only daemons and nodes of the test cluster may be taken away")


def command(directory: Path, *arguments: str) -> list[str]:
    """What a user types from the repository's root, but without conda and without long waits between two looks."""
    words = [sys.executable, "-m", "snakemake", "--profile", "slurm", "--sdm", "env-modules"]
    words += ["--slurm-init-seconds-before-status-checks", "2", "--latency-wait", "10"]
    return [*words, "--configfile", str(directory / "mine.yaml"), "--directory", str(directory), *arguments]


def start(directory: Path, *arguments: str, root: Path = ROOT) -> subprocess.Popen:
    """Start a run and leave it going; its words go to ``directory``/run.log."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with open(directory / "run.log", "a") as log:
        return subprocess.Popen(
            command(directory, *arguments), cwd=root, env=environment, stdout=log, stderr=log, start_new_session=True
        )


def finish(run: subprocess.Popen, directory: Path, check: bool = True, seconds: int = 1500) -> str:
    """Wait for a run and return its words."""
    status = run.wait(timeout=seconds)
    words = (directory / "run.log").read_text()
    assert not check or status == 0, words[-6000:]
    return words


def wait_for(what: Callable[[], object], run: subprocess.Popen | None = None, seconds: float = 300) -> object:
    """Return what ``what`` gives once it gives something."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if found := what():
            return found
        assert run is None or run.poll() is None, "the run ended before"
        time.sleep(0.2)
    raise AssertionError("waited in vain")


def queued(run: str) -> dict[str, str]:
    """Return {job: what it does} of the jobs of a run that are not over."""
    shown = subprocess.run(
        ["squeue", "--noheader", f"--name={run}", "--states=PENDING,RUNNING,COMPLETING", "--format=%i %k"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(line.split(" ", 1) for line in shown.stdout.splitlines())


def run_name(directory: Path) -> str:
    """Return the name that squeue shows for the jobs of the last run in a directory."""
    words = (directory / "run.log").read_text()
    return words.rpartition("SLURM run ID: ")[2].split()[0] if "SLURM run ID: " in words else ""


def jobs_of(name: str) -> list[dict[str, str]]:
    """Return what SLURM's accounting knows of a run's jobs; one that was put back into the queue is there twice."""
    fields = ("jobid", "state", "partition", "alloccpus", "reqmem", "timelimitraw", "comment")
    shown = subprocess.run(
        ["sacct", "-X", "--duplicates", "--noheader", "--parsable2", f"--name={name}", f"--format={','.join(fields)}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [dict(zip(fields, line.split("|"), strict=True)) for line in shown.stdout.splitlines()]


def with_fault(root: Path, rule: str, fault: str, marker: Path, always: str = "") -> None:
    """Let the jobs of a rule of a copy of the repository do ``fault`` (Python) before their work, the first time.

    ``always`` is done each time, before that.
    """
    path = root / "scripts/job.py"
    before, work, after = path.read_text().rpartition("run_job(snakemake)")
    assert work
    once = (
        f"import pathlib, time\nmarker = pathlib.Path({str(marker)!r})\nif not marker.exists():\n    marker.touch()\n"
    )
    once += "    from cxr.base.jobs import start_logging\n    start_logging(snakemake.log[0])\n" + textwrap.indent(
        f"{fault}\n", "    "
    )
    guarded = textwrap.indent(f"{always}\n{once}", "    ")
    path.write_text(f"{before}if snakemake.rule == {rule!r}:\n{guarded}\n{work}{after}")


def start_asleep(directory: Path, seconds: int, *arguments: str) -> tuple[subprocess.Popen, Path]:
    """Start a run for the dataset from a copy of the repository; return both once its first job of frames sleeps."""
    root, marker = copy_repository(directory / "copy"), directory / "slept"
    with_fault(root, "frames_shard", f"time.sleep({seconds})", marker)
    write_settings(directory, TWO)
    run = start(directory, "dataset", *arguments, root=root)
    wait_for(marker.exists, run)
    return run, root
