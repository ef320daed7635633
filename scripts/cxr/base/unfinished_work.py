"""The folder in which a long job keeps unfinished work, so that the same job can resume it."""

import logging
import shutil
from pathlib import Path

log = logging.getLogger("cxr")


def prepare_folder(folder: Path, identity: str, *, pattern: str = "", warning: str = "") -> None:
    """Create the folder of a job's unfinished work; empty it if it belongs to a different job.

    ``identity``: digest of all that the result depends on. ``warning``: logged if files of ``pattern`` are deleted.
    """
    mark = folder / "identity"
    if mark.is_file() and mark.read_text() == identity:
        return
    if pattern and any(folder.glob(pattern)):
        log.warning("%s", warning)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    mark.write_text(identity)


def describe_files(path: str | Path, *, times: bool = False) -> bytes:
    """Return name and size of a file, or of all files in a folder, as the text to digest for files too large to read.

    ``times``: include modification times, for files that may change without changing size.
    """
    facts = []
    for file in filter(Path.is_file, (Path(path), *sorted(Path(path).rglob("*")))):
        stat = file.stat()
        facts.append(f"{file.name} {stat.st_size}{f' {stat.st_mtime_ns}' if times else ''}\n")
    return "".join(facts).encode()
