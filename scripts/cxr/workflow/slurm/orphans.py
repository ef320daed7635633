"""Find jobs that a killed run left in SLURM's queue."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from cxr.base.errors import UserError

RUN_NAME = re.compile(r"(?:[\w-]+_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Job names of one run, given by the executor: a prefix and a UUID."""
PATIENCE_S = 20
"""Longest time for SLURM to answer, seconds."""


def refuse_orphans(directory: str | Path, submits: bool) -> None:
    """Raise UserError if SLURM jobs of an earlier run still work in ``directory``.

    Snakemake killed with -9 leaves its jobs in the queue. A new run does not know them and would submit the same work
    again, so that two jobs would write one file. A run that ``submits`` to SLURM is also refused while SLURM does not
    answer, because such jobs may exist. A run on this machine only is accepted, because SLURM may be gone for good.
    """
    try:
        names = find_orphans(Path(directory))
    except UserError:
        if submits:
            raise
        return
    if names:
        raise UserError(
            f"jobs of an earlier run still work in this folder ({', '.join(names)}): wait until `squeue --me` shows "
            f"none of them, or end them with `scancel --name={','.join(names)}`, then start again"
        )


def find_orphans(directory: Path) -> list[str]:
    """Return the names of the runs whose jobs are in SLURM's queue and work in ``directory``.

    A job's working directory is the folder where Snakemake was started or its ``--directory``, whatever the executor's
    settings. Returns nothing if SLURM is not installed. Raises UserError if it does not answer.
    """
    if not shutil.which("squeue"):
        return []
    real_directory = os.path.realpath(directory)
    queued = (line.partition("|") for line in _queue("%j|%Z"))  # a folder's name may hold a "|", a run's does not
    return sorted(
        {name for name, _, at in queued if RUN_NAME.fullmatch(name) and os.path.realpath(at) == real_directory}
    )


def _queue(form: str) -> list[str]:
    command = ["squeue", "--noheader", f"--user={os.getuid()}", f"--format={form}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        reason = f"nothing in {PATIENCE_S} s"
    except OSError as error:
        reason = str(error)
    else:
        if done.returncode == 0:
            return os.fsdecode(done.stdout).split("\n")
        reason = os.fsdecode(done.stderr).strip() or f"status {done.returncode}"
    raise UserError(
        f"SLURM does not answer ({' '.join(reason.split())}), so jobs of an earlier run may still work in this folder: "
        "start again when `squeue --me` answers"
    )
