"""Folders that are whole or not there."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ils.core.store import HOST, clear


@contextmanager
def whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside ``path``; on success it takes that name, on failure it is removed."""
    final = Path(path)
    final.parent.mkdir(parents=True, exist_ok=True)
    clear(final)
    folder = final.with_name(f".{final.name}.{HOST}.{os.getpid()}.part")
    shutil.rmtree(folder, ignore_errors=True)  # of a process with our number, before a restart
    folder.mkdir()
    try:
        yield folder
        shutil.rmtree(final, ignore_errors=True)
        os.replace(folder, final)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def link(source: Path, target: Path) -> None:
    """Give a file a second name, or where the file system cannot, copy it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def link_all(source: str | Path, target: Path) -> None:
    """Link every file below a folder."""
    for file in sorted(Path(source).rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            link(file, target / file.relative_to(source))
