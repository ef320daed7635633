"""Scanning a Parquet table that may not fit in memory."""

import hashlib
import mmap
from pathlib import Path

import polars as pl

from cxr.base.errors import unreadable_file_error
from cxr.base.tables import BEFORE_DIGEST, BLANK


def scan_table(path: str | Path) -> pl.LazyFrame:
    """Return a lazy frame of a Parquet table, whose rows are read when it is collected.

    Raises StoreError with one sentence if it cannot be read, or if its digest does not match.
    """
    try:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _check(data)
        table = pl.scan_parquet(path)
        table.collect_schema()
        return table
    except (OSError, ValueError, pl.exceptions.PolarsError) as error:
        raise unreadable_file_error(Path(path), error) from None


def _check(data: mmap.mmap) -> None:
    # repeats tables.py, because that module is in the code digest of every stage: a change there reruns them all
    position = data.rfind(BEFORE_DIGEST)
    if position < 0:
        return
    start = position + len(BEFORE_DIGEST)
    digest = hashlib.blake2b(digest_size=len(BLANK) // 2)
    with memoryview(data) as view:
        digest.update(view[:start])
        digest.update(BLANK.encode())
        digest.update(view[start + len(BLANK) :])
    if digest.hexdigest().encode() != data[start : start + len(BLANK)]:
        raise ValueError("its digest is not that of its bytes")
