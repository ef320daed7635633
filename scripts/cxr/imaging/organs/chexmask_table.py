"""Split the CheXmask table of MIMIC-CXR by shard, in one pass."""

import csv
import gzip
import io
import logging
from contextlib import ExitStack
from pathlib import Path

from cxr.annotations.chexmask import COLUMNS, IDS, stream_rows
from cxr.base.atomic import atomic_file
from cxr.base.tables import read_table

KEY = "organs.chexmask.table"
MAX_BUFFERED_CHARACTERS = 64 * 2**20
"""Number of characters, over all shards, that are buffered before they are written."""
log = logging.getLogger("cxr.imaging.organs")


def split_table(*, table: str, cohort: list[str], output: list[str]) -> None:
    """Write each shard's rows of the table as gzipped CSV; ``cohort``: the shards' tables of images.

    ``output``: one path per shard, in the same order. Raises UserError like
    :func:`cxr.annotations.chexmask.stream_rows`.
    """
    shard_of = {name: number for number, path in enumerate(cohort) for name in read_table(path)["image_id"]}
    with ExitStack() as stack:
        parts = [stack.enter_context(atomic_file(path)) for path in output]
        waiting: list[list[list[str | None]]] = [[COLUMNS] for _ in parts]
        num_buffered = num_rows = 0
        for row in stream_rows(KEY, table, list(shard_of)):
            waiting[shard_of[row[IDS]]].append(list(row.values()))
            num_rows += 1
            num_buffered += sum(len(value or "") for value in row.values())
            if num_buffered > MAX_BUFFERED_CHARACTERS:
                _append_rows(parts, waiting)
                num_buffered = 0
        _append_rows(parts, waiting)
    log.info("chexmask: the table has %d rows of the cohort's %d images", num_rows, len(shard_of))


def _append_rows(parts: list[Path], waiting: list[list[list[str | None]]]) -> None:
    for part, rows in zip(parts, waiting, strict=True):
        if rows:
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(rows)
            with open(part, "ab") as file:
                file.write(gzip.compress(text.getvalue().encode(), compresslevel=1, mtime=0))
            rows.clear()
