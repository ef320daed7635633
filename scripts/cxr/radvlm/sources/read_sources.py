"""Reads external sources, lists images that need a frame, and finds subjects that sources put in different splits."""

from collections.abc import Mapping, Sequence
from importlib import import_module

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.jobs import log
from cxr.base.seeds import shard_of
from cxr.base.tables import read_table, write_rows, write_table
from cxr.imaging.cohort import rows as cohort
from cxr.radvlm.settings import FORMATS
from cxr.radvlm.sources.facts import ReadOptions, SourceRecords, write_source

SPLIT_PRIORITY = ("test", "validate", "train")  # a subject in several splits stays in the first of these
CONFLICTS: Columns = {
    "source": Column(pl.String, "Name of the source."),
    "image_id": Column(pl.String, "Id of the image, which is excluded from the mix (split_conflict)."),
    "study_id": Column(pl.String, "Study id."),
    "split": Column(pl.String, "Split of the image in its source."),
    "subject_split": Column(pl.String, "Split in which the subject stays."),
}


def read_source(options: ReadOptions, mimic: str = "") -> SourceRecords:
    """Return the records of a source. ``mimic``: image table of the source whose images it annotates, "" if none."""
    source_format = FORMATS[options.source["format"]]
    module, _, function = source_format.reader.rpartition(".")
    read = getattr(import_module(f"cxr.radvlm.sources.{module}"), function)
    return read(options, mimic) if source_format.on_mimic else read(options)


def run(
    *, options: ReadOptions, tables: Sequence[str] = (), shards: Sequence[str] = (), mimic: str = "", **outputs: str
) -> None:
    """Read a source and write the files ``outputs`` (by name in OUTPUTS). Raises UserError if the reader does.
    ``shards``: output files that list the source's images, of which other jobs make frames; ``tables``: not used."""
    del tables
    records = read_source(options, mimic)
    write_source(records, options.name, outputs)
    source_images = [row for row in records.images if row["frames"] == options.name]
    for number, path in enumerate(shards):
        shard_rows = [row for row in source_images if shard_of(row["subject_id"], len(shards)) == number]
        write_rows(path, cohort_rows(shard_rows), cohort.SHARD)
    log.info("%s: %d images, %d rows excluded", options.name, len(records.images), len(records.excluded))


def cohort_rows(rows: Sequence[dict]) -> list[dict]:
    """Return a source's images as rows of a cohort. Each image counts as a study, so that every image gets a frame."""
    return [
        {name: row[name] for name in ("image_id", "subject_id", "split", "path")}
        | {"study_id": row["image_id"], "view": row["view"] or "", "rank": 0, "report_missing": False}
        for row in sorted(rows, key=lambda row: row["image_id"])
    ]


def find_conflicts(images: Sequence[pl.DataFrame], family: Mapping[str, str]) -> pl.DataFrame:
    """Return the images (CONFLICTS) whose subject also has images in a split of higher priority (SPLIT_PRIORITY).
    ``family``: {source: family}. Sources of one family share subjects."""
    table = pl.concat([table.select("source", "image_id", "study_id", "subject_id", "split") for table in images])
    rank = pl.col("split").replace_strict(SPLIT_PRIORITY, range(len(SPLIT_PRIORITY)), return_dtype=pl.Int64)
    subject = pl.struct(pl.col("source").replace_strict(dict(family)), "subject_id")
    first = pl.col("first").replace_strict(range(len(SPLIT_PRIORITY)), SPLIT_PRIORITY, return_dtype=pl.String)
    table = table.with_columns(first=rank.min().over(subject)).with_columns(subject_split=first)
    return table.filter(pl.col("split") != pl.col("subject_split")).select(list(CONFLICTS)).sort("source", "image_id")


def run_splits(*, images: Sequence[str], conflicts_out: str, families: Mapping[str, str]) -> None:
    """Write the table of :func:`find_conflicts`. ``images``: image tables; ``families``: {source: family}."""
    conflict_table = find_conflicts(list(map(read_table, images)), families)
    write_table(conflicts_out, conflict_table, CONFLICTS)
    if conflict_table.height:
        rows = conflict_table["source"].value_counts().sort("source").rows()
        summary = ", ".join(f"{source}: {number}" for source, number in rows)
        log.warning("images excluded because a related source has their subject in another split: %s", summary)
