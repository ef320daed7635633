"""Whole runs that are killed in the middle of a job: what a job does to itself, and how such a run is started."""

import os
import subprocess
import sys
from pathlib import Path

KILL = """import os, signal
from cxr.base import atomic as module
replace = os.replace
def killed(*paths):
    replace(*paths)
    os.killpg(0, signal.SIGKILL)
os.replace = killed"""
"""The job and Snakemake end as the first of the job's files has its name, and the others have not."""

IN_PLACE = """import contextlib, os, pathlib, signal
from cxr.base import atomic as module
@contextlib.contextmanager
def in_place(path):
    yield pathlib.Path(path)
    os.truncate(path, os.path.getsize(path) // 2)
    os.killpg(0, signal.SIGKILL)
module.atomic_file = in_place
from cxr.base import tables
tables.atomic_file = in_place"""
"""A writer without a temporary name, which ends with Snakemake in the middle of its first file."""


def killed_run(root: Path, folder: Path, *targets: str) -> subprocess.CompletedProcess:
    """Run targets from a copy of the repository, in a process group that a job may kill.

    Nothing is locked, so the next run need not unlock what this one, killed, left behind.
    """
    command = [sys.executable, "-m", "snakemake", "--snakefile", str(root / "Snakefile"), "--directory", str(folder)]
    command += ["--configfile", str(folder / "mine.yaml"), "--cores", "1", "--rerun-incomplete", "--nolock"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, *targets], cwd=root, env=environment, capture_output=True, text=True, check=False,
        start_new_session=True,
    )  # fmt: skip
