"""Atomic writing: a file or folder appears under its name only when it is complete."""

import glob
import itertools
import os
import platform
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOST = platform.node().partition(".")[0]  # process ids are unique only within a computer, but computers share folders
ABANDONED_S = 86400  # seconds without a change after which another computer's temporary file counts as abandoned


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``. The file there is renamed to ``path`` on success, else deleted."""
    temporary = _temporary_path(Path(path))
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _temporary_path(path: Path) -> Path:
    """Return a temporary path beside ``path``. Create the folder, and delete temporary files that killed jobs left."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for leftover in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        *_, host, process, _ = leftover.name.split(".")
        writer_has_ended = host == HOST and Path("/proc/self").exists() and not Path(f"/proc/{process}").exists()
        if writer_has_ended or not _changed_recently(leftover):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)
    return path.with_name(f".{path.name}.{HOST}.{os.getpid()}.part")


def _changed_recently(leftover: Path) -> bool:
    below = (Path(root) / name for root, folders, files in os.walk(leftover) for name in [*folders, *files])
    try:
        return any(path.lstat().st_mtime >= time.time() - ABANDONED_S for path in itertools.chain([leftover], below))
    except FileNotFoundError:  # the writer has just removed or renamed it
        return True


@contextmanager
def atomic_folder(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``. The folder is renamed to ``path`` on success, else deleted."""
    final = Path(path)
    folder = _temporary_path(final)
    shutil.rmtree(folder, ignore_errors=True)  # left by a process with the same id, before a restart
    folder.mkdir()
    try:
        yield folder
        shutil.rmtree(final, ignore_errors=True)
        os.replace(folder, final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def link_file(source: Path, target: Path) -> None:
    """Create the hard link ``target`` to the file ``source``, or copy the file where a hard link is impossible."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def link_folder(source: str | Path, target: Path) -> None:
    """Create a link below ``target`` for each file below ``source``, at the same relative path. Skip hidden files."""
    for file in sorted(Path(source).rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            link_file(file, target / file.relative_to(source))
