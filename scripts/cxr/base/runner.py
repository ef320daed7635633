"""End a job whose Snakemake was killed (SIGKILL, out of memory), so that no orphan writes beside the next run.

Each Snakemake process that starts jobs announces itself in an environment variable, and each job watches that process;
on a cluster it is the Snakemake of the job's own step. Processes are looked up in /proc, so this works on Linux only.
"""

import os
import signal
import threading
import time
from collections import defaultdict
from contextlib import suppress
from functools import cache
from pathlib import Path

RUNNER = "CXR_ILS_RUNNER"  # environment variable that holds the identity of the Snakemake process that starts the jobs
INTERVAL_S = 0.5  # seconds between two looks at that process
PROC = Path("/proc")


def announce_runner() -> None:
    """Name this process to the jobs that it starts, which watch it."""
    os.environ[RUNNER] = _identity(os.getpid())


def end_with_runner() -> None:
    """Watch the announced Snakemake in a thread; when it is gone, kill this job and all processes below it.

    Without an announcement, and in a container that has processes of its own, nothing is watched.
    """
    runner = os.environ.get(RUNNER, "")
    namespace, _, process = runner.rpartition(" ")[0].rpartition(" ")
    if namespace and namespace == _namespace():
        threading.Thread(target=_watch, args=(int(process), runner), daemon=True).start()


def _watch(process: int, identity: str) -> None:
    while not _has_ended(process, identity):
        time.sleep(INTERVAL_S)
    for below in descendants(os.getpid()):
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(below, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _has_ended(process: int, identity: str) -> bool:
    try:
        return _identity(process) != identity
    except OSError:  # too many open files, …: that ends no process
        return False


@cache
def _namespace() -> str:
    """Return where process numbers hold: the start of this computer and its namespace; "" if the system has none."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _identity(process: int) -> str:
    """Return "place process start" of a running process, "" of an ended one; numbers alone are used again."""
    fields = _status(process)
    # a killed process stays as a zombie until its parent looks at it
    return "" if not fields or fields[0] in "ZX" else f"{_namespace()} {process} {fields[19]}"


def _status(process: int) -> list[str]:
    """Return the fields of /proc/<process>/stat after the name: state, parent, …; none of a process that is gone."""
    try:
        # the name may hold blanks and parentheses
        return (PROC / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, those that they have started, and so on."""
    children = defaultdict(list)
    for path in PROC.glob("[0-9]*"):
        with suppress(OSError):
            if fields := _status(int(path.name)):
                children[int(fields[1])].append(int(path.name))
    below, waiting = [], [process]
    while waiting:
        started = children[waiting.pop()]
        below += started
        waiting += started
    return below
