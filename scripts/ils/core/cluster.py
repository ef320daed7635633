"""What the workflow has to know of a cluster: resources that grow with each try, why a group of jobs failed, and jobs
of a run that was killed.
"""

import functools
import getpass
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from ils.core.run import UserError

RUN_NAME = re.compile(r"(?:[\w-]+_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Names that the executor gives to the jobs of one run: a prefix and a UUID."""
PATIENCE_S = 20
"""How long SLURM may take to answer, seconds."""


def growing(amount: int, most: float = math.inf) -> Callable:
    """Return a rule's resource that is ``amount`` at the first try, twice that at the second and so on, up to ``most``.

    A job that ran out of memory or of time is tried again with more, as often as the profile's ``retries`` says. More
    time than a partition allows must not be asked for: SLURM refuses such a try or lets it wait for ever, whatever the
    one before failed of.
    """
    return lambda wildcards, attempt: min(amount * attempt, most)


def tell_why_groups_fail() -> None:
    """Let Snakemake print why a group of jobs failed, as it does for a single job.

    Snakemake 9.27 leaves out what its executor says of a group, so that of jobs which SLURM refuses (a limit of the
    partition, no node that fits) nothing would be told but that they failed, with an empty log.
    """
    from snakemake.jobs import GroupJob  # here, for only a workflow needs it
    from snakemake.logging import logger

    log_error = GroupJob.log_error
    if hasattr(log_error, "__wrapped__"):  # done: a Snakefile may be read twice in a process
        return

    @functools.wraps(log_error)
    def told(self, msg=None, *arguments, **named):
        if msg:
            logger.error(f"Group {self.groupid}: {msg}")
        return log_error(self, msg, *arguments, **named)

    GroupJob.log_error = told


def refuse_orphans(directory: str | Path) -> None:
    """Raise UserError if SLURM jobs of an earlier run still write into ``directory`` (its ``.snakemake``).

    Snakemake killed with -9 leaves its jobs in the queue. Started again it knows nothing of them and submits the same
    work once more: two jobs would write one file.
    """
    names = orphans(Path(directory))
    if names:
        raise UserError(
            f"jobs of an earlier run still work in this folder ({', '.join(names)}): wait until `squeue --me` shows "
            f"none of them, or end them with `scancel --name={','.join(names)}`, then start again"
        )


def orphans(directory: Path) -> list[str]:
    """Return the names of the runs whose jobs are in SLURM's queue and have their logs below ``directory``.

    Nothing is found where SLURM is absent or does not answer: what cannot submit cannot be disturbed.
    """
    if not shutil.which("squeue"):
        return []
    queued = _answer("squeue", "--noheader", f"--user={getpass.getuser()}", "--format=%i %j")
    first = {}  # jobs of one run have one folder: asking for one of them is enough
    for line in queued.splitlines():
        job, _, name = line.partition(" ")
        if RUN_NAME.fullmatch(name.strip()):
            first.setdefault(name.strip(), job)
    logs = f"{os.path.realpath(directory)}{os.sep}.snakemake{os.sep}"
    return sorted(name for name, job in first.items() if os.path.realpath(_log_of(job)).startswith(logs))


def _log_of(job: str) -> str:
    found = re.search(r"\bStdOut=(.*)", _answer("scontrol", "show", "job", job))
    return found.group(1).strip() if found else ""


def _answer(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
