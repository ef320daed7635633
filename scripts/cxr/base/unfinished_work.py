"""The folder in which a long job keeps unfinished work, so that the same job can resume it."""

import logging
import shutil
from pathlib import Path

log = logging.getLogger("cxr")


def prepare_folder(folder: Path, identity: str, *, pattern: str = "", warning: str = "") -> None:
    """Create the folder of a job's unfinished work. Old content is kept if the same job wrote it, else deleted.

    ``identity`` is a digest of everything that the job's result depends on; equal digests mean the same job.
    ``warning`` is logged if files that match ``pattern`` are deleted.
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
    """Return the name and size of a file, or of every file in a folder, for a digest of files too large to read.

    ``times`` adds the modification times, for files that may change without a change in size.
    """
    facts = []
    for file in filter(Path.is_file, (Path(path), *sorted(Path(path).rglob("*")))):
        stat = file.stat()
        facts.append(f"{file.name} {stat.st_size}{f' {stat.st_mtime_ns}' if times else ''}\n")
    return "".join(facts).encode()
