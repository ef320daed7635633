"""What the workflow has to know of a cluster: resources that grow with each try, the warning before a time limit, why
a group of jobs failed, and locks and jobs of a run that was killed.
"""

import ast
import functools
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ils.core.run import UserError

RUN_NAME = re.compile(r"(?:[\w-]+_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Names that the executor gives to the jobs of one run: a prefix and a UUID."""
PATIENCE_S = 20
"""How long SLURM may take to answer, seconds."""


def growing(amount: int | Callable[[object], int], most: int) -> Callable:
    """Return a rule's resource that is ``amount`` at the first try, twice that at the second and so on, up to ``most``.

    ``amount`` may depend on the job's wildcards.

    A job that ran out of memory or of time is tried again with more, as often as the profile's ``retries`` says. More
    than a partition allows or a node has must not be asked for: SLURM refuses such a try or lets it wait for ever,
    whatever the one before failed of.
    """
    first = amount if callable(amount) else lambda wildcards: amount
    return lambda wildcards, attempt: min(first(wildcards) * attempt, most)


def warned(defaults: Mapping | None, seconds: int) -> str:
    """Return what a job asks of sbatch so that it is warned ``seconds`` before its time limit, with SIGURG.

    The warning goes to all processes of the job's step, and ends none that does not ask for it: SIGTERM or SIGUSR1
    would end the shell that the executor starts there, and SLURM kills what is left of a step whose first process
    ended. ``defaults``: the profile's default-resources, whose slurm_extra a rule's own would replace: both are asked.
    """
    given = (defaults or {}).get("slurm_extra")
    raw = "" if given is None else str(getattr(given, "raw", given) or "")
    try:
        others = str(ast.literal_eval(raw)) if raw else ""
    except (ValueError, SyntaxError):  # not in quotes
        others = raw
    return " ".join(filter(None, (others, f"--signal=URG@{seconds}")))


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


def tell_of_locks() -> None:
    """Let Snakemake say of a locked folder who locks it, and give the command that frees it, options and all."""
    from snakemake.exceptions import LockException, WorkflowError  # here, for only a workflow needs it

    LockException.__init__ = lambda self: WorkflowError.__init__(self, lock_told(Path.cwd(), sys.argv, sys.executable))


def lock_told(directory: Path, arguments: list[str], python: str) -> str:
    """Return what to do about the lock of a folder; ``arguments``, ``python``: how Snakemake was started."""
    if at_work := workers(directory):
        return f"{directory} is in use: Snakemake works in it as process {at_work[0]}; wait for that, or end it"
    program = [arguments[0]] if Path(arguments[0]).name == "snakemake" else [python, "-m", "snakemake"]
    command = shlex.join([*program, *arguments[1:], "--unlock"])
    told = (
        f"{directory} is locked by a run that was killed: no Snakemake on {platform.node()} works in it. If none does "
        f"on another machine either, free it with\n\n    {command}\n\nand start again: what is finished stays, what "
        "was half done is made again"
    )
    try:
        refuse_orphans(directory, submits=False)
    except UserError as error:
        return f"{told}. First: {error}"
    return told


def workers(directory: Path) -> list[int]:
    """Return the processes of Snakemake on this machine, but for this one, that work in a folder."""
    here, found = os.path.realpath(directory), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            at = os.path.realpath(process / "cwd")
        except OSError:  # it ended, or is another user's
            continue
        if at == here and any(Path(os.fsdecode(word)).name == "snakemake" for word in words[:4]):
            found.append(int(process.name))
    return sorted(number for number in found if number != os.getpid())


def refuse_orphans(directory: str | Path, submits: bool) -> None:
    """Raise UserError if SLURM jobs of an earlier run still work in ``directory``.

    Snakemake killed with -9 leaves its jobs in the queue. Started again it knows nothing of them and submits the same
    work once more: two jobs would write one file. A run that itself ``submits`` to SLURM is refused too while that does
    not answer, for its jobs may be there when it does; one on this machine alone goes on, where SLURM may be down for
    good.
    """
    try:
        names = orphans(Path(directory))
    except UserError:
        if submits:
            raise
        return
    if names:
        raise UserError(
            f"jobs of an earlier run still work in this folder ({', '.join(names)}): wait until `squeue --me` shows "
            f"none of them, or end them with `scancel --name={','.join(names)}`, then start again"
        )


def orphans(directory: Path) -> list[str]:
    """Return the names of the runs whose jobs are in SLURM's queue and work in ``directory``.

    A job's working directory is where Snakemake was started or its ``--directory``, whatever the executor's settings.
    Nothing is found where SLURM is not installed; raises UserError where it does not answer.
    """
    if not shutil.which("squeue"):
        return []
    here = os.path.realpath(directory)
    queued = (line.partition("|") for line in _queue("%j|%Z"))  # a folder's name may hold a "|", a run's does not
    return sorted({name for name, _, at in queued if RUN_NAME.fullmatch(name) and os.path.realpath(at) == here})


def _queue(form: str) -> list[str]:
    command = ["squeue", "--noheader", f"--user={os.getuid()}", f"--format={form}"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    except subprocess.TimeoutExpired:
        said = f"nothing in {PATIENCE_S} s"
    except OSError as error:
        said = str(error)
    else:
        if done.returncode == 0:
            return os.fsdecode(done.stdout).split("\n")
        said = os.fsdecode(done.stderr).strip() or f"status {done.returncode}"
    raise UserError(
        f"SLURM does not answer ({' '.join(said.split())}), so jobs of an earlier run may still work in this folder: "
        "start again when `squeue --me` answers"
    )
