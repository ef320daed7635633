"""Tables that record the state of each cohort file that a job has read, so that a later run can detect changed files.

A cohort's images and reports are not inputs of rules, because Snakemake would check each of hundreds of thousands of
files several times. Before the next run, ``workflow.changed_files`` reads only files whose size or time has changed.
"""

import os
import stat
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import MACHINE_ERRORS
from cxr.base.regular_files import open_regular
from cxr.base.tables import write_table

COLUMNS = {
    "id": Column(pl.String, "Id of the image or study to which the file belongs, or name of the report file."),
    "path": Column(pl.String, "Path of the file, as the cohort gives it."),
    "head_bytes": Column(pl.Int64, "Number of leading bytes that are compared, such as a header; null for all bytes."),
    "size": Column(pl.Int64, "Size when the job read the file; null if it was missing or not readable.", "bytes"),
    "modified_ns": Column(pl.Int64, "Time of the file's last change at that time; null as in `size`.", "ns since 1970"),
    "crc32": Column(pl.Int64, "CRC-32 of the compared bytes; null as in `size`."),
}
BLOCK = 1 << 20  # bytes to read at a time


class FileState(NamedTuple):
    """State of a file: size in bytes, time of the last change in ns, and CRC-32 of the compared bytes."""

    size: int
    modified_ns: int
    crc32: int


def sizes_and_times(paths: Iterable[str]) -> list[tuple[int | None, int | None]]:
    """Return (size in bytes, time of the last change in ns) of each regular file, (None, None) for any other path.

    One loop handles all files, for speed, because each run starts with a check of hundreds of thousands of files.
    """
    states: list[tuple[int | None, int | None]] = []
    for path in paths:
        try:
            status = os.stat(path)
        except (OSError, ValueError):
            states.append((None, None))
        else:
            is_file = stat.S_ISREG(status.st_mode)
            states.append((status.st_size, status.st_mtime_ns) if is_file else (None, None))
    return states


def read_state(path: str, head_bytes: int | None = None) -> FileState | None:
    """Return the state of a file; None if it is missing, not permitted to be read, or not a regular file.

    The CRC-32 covers the first ``head_bytes`` bytes, or all. Raises OSError if a disk or the network fails.
    """
    try:
        with open_regular(path) as file:
            status = os.fstat(file.fileno())
            crc32, remaining = 0, status.st_size if head_bytes is None else head_bytes
            while remaining > 0 and (block := file.read(min(remaining, BLOCK))):
                crc32 = zlib.crc32(block, crc32)
                remaining -= len(block)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in MACHINE_ERRORS:
            raise
        return None
    return FileState(status.st_size, status.st_mtime_ns, crc32)


def state_row(row_id: str, path: str, head_bytes: int | None = None) -> tuple:
    """Return a row of :data:`COLUMNS`: id, path, ``head_bytes`` and the file's present :func:`read_state`."""
    state = read_state(path, head_bytes) or (None, None, None)
    return (row_id, path, head_bytes, *state)


def write_states(path: str | Path, rows: Sequence[tuple]) -> None:
    """Write rows made by :func:`state_row` as a table, sorted by id and path."""
    write_table(path, pl.DataFrame(sorted(rows), schema=schema(COLUMNS), orient="row"), COLUMNS)
