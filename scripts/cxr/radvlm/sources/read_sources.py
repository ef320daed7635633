"""Read one external source: images, facts, texts, exclusions and counts, and a cohort for its frames."""

from collections.abc import Sequence

import polars as pl

from cxr.base.columns import schema
from cxr.base.jobs import log
from cxr.base.seeds import shard_of
from cxr.base.tables import write_table
from cxr.imaging.cohort import rows as cohort
from cxr.radvlm.sources.boxes import read_box_file, read_vindr
from cxr.radvlm.sources.chexpert import read_chexpert, read_chexpert_plus
from cxr.radvlm.sources.facts import ReadOptions, SourceRecords
from cxr.radvlm.sources.mimic import read_mimic
from cxr.radvlm.sources.on_mimic import read_imagenome, read_ms_cxr
from cxr.radvlm.sources.padchest_gr import read_padchest_gr
from cxr.radvlm.sources.read_own import write_source

READERS = {
    "mimic": read_mimic, "chexpert": read_chexpert, "chexpert_plus": read_chexpert_plus, "vindr": read_vindr,
    "padchest_gr": read_padchest_gr, "nih": read_box_file, "rsna": read_box_file, "coco": read_box_file,
}  # fmt: skip
"""{format: reader}."""
ON_MIMIC = {"ms_cxr": read_ms_cxr, "imagenome": read_imagenome}
"""Readers of formats that use the images of a mimic source."""


def read_source(options: ReadOptions, mimic: str = "") -> SourceRecords:
    """Read a source. ``mimic``: image table of the mimic source. Raises UserError."""
    kind = options.source["format"]
    return ON_MIMIC[kind](options, mimic) if kind in ON_MIMIC else READERS[kind](options)


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
