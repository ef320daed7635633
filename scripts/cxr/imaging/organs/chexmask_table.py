"""The MIMIC-CXR table of the CheXmask database (PhysioNet): 15 GB of text, read once and split by shard."""

import csv
import gzip
import io
import logging
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic
from cxr.base.errors import UserError
from cxr.base.tables import read_table

IDS, DICE, HEIGHT, WIDTH, POINTS = "dicom_id", "Dice RCA (Mean)", "Height", "Width", "Landmarks"
RUNS = {"right lung": "Right Lung", "left lung": "Left Lung", "heart": "Heart"}
COLUMNS = [IDS, DICE, HEIGHT, WIDTH, POINTS, *RUNS.values()]
LINES = [name for name in COLUMNS if name != POINTS]
"""Columns whose cells have one line."""
BATCH = 64
"""Rows of the table that are handed on at a time; one takes about 60 kB."""
HELD = 64 * 2**20
"""Characters that wait, over all shards, before they are written."""
log = logging.getLogger("cxr.imaging.organs")


def rows_of(path: str, image_ids: list[str]) -> Iterator[dict[str, str | None]]:
    """Yield the rows of some images, {column: text}, in the table's order.

    The table streams by: no more is held than what is just being read. Raises UserError with one sentence for a file
    that is no such table.
    """
    try:
        table = pl.scan_csv(path, infer_schema=False)
        if missing := [name for name in COLUMNS if name not in table.collect_schema()]:
            raise UserError(
                f"organs.chexmask.table {path!r} lacks the column {', '.join(missing)}: give the CheXmask database's "
                "OriginalResolution/MIMIC-CXR-JPG.csv"
            )
        # a stray quotation mark joins lines: only the landmarks have several
        joined = pl.any_horizontal(pl.col(LINES).str.contains("\n", literal=True))
        wanted = table.select(COLUMNS).filter(pl.col(IDS).is_in(image_ids) | joined)
        for batch in wanted.collect_batches(chunk_size=BATCH, maintain_order=True):
            for row in batch.iter_rows(named=True):
                if any("\n" in (row[name] or "") for name in LINES):
                    raise UserError(
                        f"organs.chexmask.table {path!r} has a quotation mark that joins lines: get the table anew"
                    )
                yield row
    except (OSError, pl.exceptions.PolarsError) as error:
        raise UserError(
            f"organs.chexmask.table is {path!r}, which is no whole CSV ({type(error).__name__}): get it anew"
        ) from None


def split(*, table: str, cohort: list[str], output: list[str]) -> None:
    """Write for each shard of the cohort (``cohort``, tables of images) its rows of the table, as CSV in gzip.

    ``output``: a path a shard, in the same order. Raises UserError as :func:`rows_of` does.
    """
    shard_of = {name: number for number, path in enumerate(cohort) for name in read_table(path)["image_id"]}
    with ExitStack() as stack:
        parts = [stack.enter_context(atomic(path)) for path in output]
        waiting: list[list[list[str | None]]] = [[COLUMNS] for _ in parts]
        held = found = 0
        for row in rows_of(table, list(shard_of)):
            waiting[shard_of[row[IDS]]].append(list(row.values()))
            found += 1
            held += sum(len(value or "") for value in row.values())
            if held > HELD:
                _write(parts, waiting)
                held = 0
        _write(parts, waiting)
    log.info("chexmask: the table has %d rows of the cohort's %d images", found, len(shard_of))


def _write(parts: list[Path], waiting: list[list[list[str | None]]]) -> None:
    """Append what waits to the files, which are open no longer than that: there may be thousands; empty ``waiting``."""
    for part, rows in zip(parts, waiting, strict=True):
        if rows:
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(rows)
            with open(part, "ab") as file:
                file.write(gzip.compress(text.getvalue().encode(), compresslevel=1, mtime=0))
            rows.clear()
