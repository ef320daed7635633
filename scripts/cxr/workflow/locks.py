"""Explain the lock that a killed run left in a folder: who holds it, and the command that frees it."""

import os
import platform
import shlex
from pathlib import Path

from cxr.base.errors import UserError
from cxr.workflow.slurm.orphans import refuse_orphans


def describe_lock(directory: Path, arguments: list[str], python: str) -> str:
    """Return advice on a folder's lock; ``arguments``, ``python``: how Snakemake was started."""
    if at_work := running_snakemakes(directory):
        return f"{directory} is in use: Snakemake works in it as process {at_work[0]}; wait for that, or end it"
    command = shlex.join([*snakemake_command(arguments, python), *arguments[1:], "--unlock"])
    advice = (
        f"{directory} is locked by a run that was killed: no Snakemake on {platform.node()} works in it. If none does "
        f"on another machine either, free it with\n\n    {command}\n\nand start again: finished files stay, "
        "half-finished ones are remade"
    )
    try:
        refuse_orphans(directory, submits=False)
    except UserError as error:
        return f"{advice}. First: {error}"
    return advice


def snakemake_command(arguments: list[str], python: str) -> list[str]:
    """Return the words that start Snakemake again; ``arguments``, ``python``: how it was started."""
    return [arguments[0]] if Path(arguments[0]).name == "snakemake" else [python, "-m", "snakemake"]


def running_snakemakes(directory: Path) -> list[int]:
    """Return the Snakemake processes on this machine that work in a folder, without this one and its parent."""
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
