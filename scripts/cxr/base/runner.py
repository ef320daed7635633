"""Ending the jobs of a killed Snakemake process (SIGKILL, out of memory), so that they do not write into the next run.

A Snakemake process that starts jobs writes its identity into an environment variable. Each job watches that process.
On a cluster, a job watches the Snakemake process on the same node. The module reads /proc, so it works only on Linux.
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
INTERVAL_S = 0.5  # seconds between two checks of that process
PROC = Path("/proc")


def announce_runner() -> None:
    """Write this process's identity into the environment variable ``RUNNER``, so that its jobs can watch it."""
    os.environ[RUNNER] = _identity(os.getpid())


def end_with_runner() -> None:
    """Start a thread that kills this job and its child processes once the Snakemake process in ``RUNNER`` has ended.

    No thread is started if ``RUNNER`` is not set, or in a container with separate process ids.
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
    except OSError:  # such as too many open files, which does not mean that the process has ended
        return False


@cache
def _namespace() -> str:
    """Return "<boot id>/<process namespace>", within which process ids are unique, or "" if the system has none."""
    try:
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.readlink(PROC / 'self/ns/pid')}"
    except OSError:
        return ""


def _identity(process: int) -> str:
    """Return "<namespace> <id> <start time>" of a process, or "" if it has ended. Its id alone may be reused."""
    fields = _status(process)
    # a killed process stays as a zombie until its parent looks at it
    return "" if not fields or fields[0] in "ZX" else f"{_namespace()} {process} {fields[19]}"


def _status(process: int) -> list[str]:
    """Return the fields of /proc/<process>/stat after the name (state, parent, …), or [] if the process has ended."""
    try:
        # the name may contain spaces and parentheses
        return (PROC / str(process) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(process: int) -> list[int]:
    """Return the ids of the child processes of a process, of their children, and so on."""
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
