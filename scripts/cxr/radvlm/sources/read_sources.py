"""Read one external source: images, facts, texts, exclusions and counts, and a cohort for its frames."""

from collections.abc import Sequence
from importlib import import_module

import polars as pl

from cxr.base.columns import schema
from cxr.base.jobs import log
from cxr.base.seeds import shard_of
from cxr.base.tables import write_table
from cxr.imaging.cohort import rows as cohort
from cxr.radvlm.sources.facts import ReadOptions, SourceRecords
from cxr.radvlm.sources.read_own import write_source
from cxr.radvlm.sources.settings import FORMATS


def read_source(options: ReadOptions, mimic: str = "") -> SourceRecords:
    """Read a source. ``mimic``: image table of the mimic source, for formats that use its images. Raises UserError."""
    source_format = FORMATS[options.source["format"]]
    module, _, function = source_format.reader.rpartition(".")
    read = getattr(import_module(f"cxr.radvlm.sources.{module}"), function)
    return read(options, mimic) if source_format.on_mimic else read(options)


def run(
    *, options: ReadOptions, tables: Sequence[str] = (), shards: Sequence[str] = (), mimic: str = "", **outputs: str
) -> None:
    """Read and write a source. ``shards``: cohort files to write, for sources with images of their own.

    ``tables``: files of the source; job inputs only, the reader finds them itself; ``outputs``: of
    :func:`write_source`. Raises UserError for a missing file or another format.
    """
    del tables
    records = read_source(options, mimic)
    write_source(records, options.name, **outputs)
    source_images = [row for row in records.images if row["frames"] == options.name]
    for number, path in enumerate(shards):
        shard_rows = [row for row in source_images if shard_of(row["subject_id"], len(shards)) == number]
        write_table(path, cohort_table(shard_rows), cohort.SHARD)
    log.info("%s: %d images, %d rows excluded", options.name, len(records.images), len(records.excluded))


def cohort_table(rows: Sequence[dict]) -> pl.DataFrame:
    """Return a cohort shard of a source's images; each is its own study, so that every image gets a frame."""
    names = schema(cohort.SHARD)
    none = dict.fromkeys(("report_path", "findings", "impression", "acquired"))
    cohort_rows = [
        {name: row[name] for name in ("image_id", "subject_id", "split", "path")}
        | {"study_id": row["image_id"], "view": row["view"] or "", "rank": 0, "report_missing": False}
        | none
        for row in sorted(rows, key=lambda row: row["image_id"])
    ]
    return pl.DataFrame(cohort_rows, schema=names)
