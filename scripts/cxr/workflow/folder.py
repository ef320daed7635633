"""Check that a run can work in its folder: permissions, other runs, SLURM jobs of earlier runs, old locks."""

import os
import platform
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from cxr.base.errors import UserError

RUN_FOLDERS = (".snakemake", "results", "logs")
RUN_NAME = re.compile(r"(?:[\w-]+_)?[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Pattern of the name that Snakemake's executor gives to all SLURM jobs of a run: a prefix and a UUID."""
PATIENCE_S = 20
"""Maximum time in seconds for SLURM to answer."""


def refuse_unwritable(directory: Path, names: tuple[str, ...] = RUN_FOLDERS) -> None:
    """Raise UserError if one of the folders ``names`` of a working directory cannot be written or made.
    On a read-only file system, the error is raised even for root, who may otherwise write everywhere."""
    for name in names:
        place = directory / name
        if not os.path.lexists(place):
            place = directory
        if place.exists() and not place.is_dir():
            raise UserError(f"{place} is a file, but a run needs a folder of that name: rename it")
        if not os.access(place, os.W_OK | os.X_OK):
            raise UserError(
                f"{place} may not be written by this user, or its file system is mounted read-only: run in "
                "another folder (--directory), or have its permissions changed"
            )


def describe_lock(directory: Path, arguments: list[str], python: str) -> str:
    """Return a message about a locked folder. ``arguments``, ``python``: Snakemake's command line and interpreter."""
    if at_work := running_snakemakes(directory):
        return f"{directory} is in use by the Snakemake process {at_work[0]}: wait until it has ended, or end it"
    command = shlex.join([*snakemake_command(arguments, python), *arguments[1:], "--unlock"])
    advice = (
        f"{directory} is locked by a run that was killed: no Snakemake on {platform.node()} works in it. If no "
        f"other machine runs Snakemake in it either, unlock it with\n\n    {command}\n\nand start again. Finished "
        "files stay, and unfinished ones are made again"
    )
    try:
        refuse_orphans(directory, submits=False)
    except UserError as error:
        return f"{advice}. Before you unlock it: {error}"
    return advice


def snakemake_command(arguments: list[str], python: str) -> list[str]:
    """Return the first words of Snakemake's command line: the path of the program, or ``python -m snakemake``."""
    return [arguments[0]] if Path(arguments[0]).name == "snakemake" else [python, "-m", "snakemake"]


def running_snakemakes(directory: Path) -> list[int]:
    """Return the ids of Snakemake processes on this machine that work in a folder, except this one and its parent."""
    folder, process_ids = os.path.realpath(directory), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            cwd = os.path.realpath(process / "cwd")
        except OSError:  # it ended, or belongs to another user
            continue
        if cwd == folder and any(Path(os.fsdecode(word)).name == "snakemake" for word in words[:4]):
            process_ids.append(int(process.name))
    return sorted({*process_ids} - {os.getpid(), os.getppid()})


def refuse_orphans(directory: str | Path, submits: bool) -> None:
    """Raise UserError if SLURM jobs of an earlier run still work in ``directory``.

    A Snakemake killed with -9 leaves its jobs in the queue, and a new run would submit the same work again. If SLURM
    does not answer, a run that ``submits`` jobs to SLURM is refused. A run on this machine alone is accepted.
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
    """Return the names (:data:`RUN_NAME`) of the runs whose jobs are in SLURM's queue and work in ``directory``.
    The list is empty if SLURM is not installed. Raises UserError if SLURM does not answer."""
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
