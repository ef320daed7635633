"""Compare the splits of all sources in use: an image whose subject is in another split leaves the mix."""

from collections.abc import Mapping, Sequence

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.jobs import log
from cxr.base.tables import read_table, write_table
from cxr.radvlm.splits import conflicts, families

CONFLICTS: Columns = {
    "source": Column(pl.String, "Source."),
    "image_id": Column(pl.String, "Image that leaves the mix: split_conflict."),
    "study_id": Column(pl.String, "Its study."),
    "split": Column(pl.String, "Split that its source gives it."),
    "kept": Column(pl.String, "Split that its subject is kept in."),
}


def run(*, images: Sequence[str], conflicts_out: str, formats: Mapping[str, str]) -> None:
    """Write the images that leave the mix. ``images``: tables of the sources; ``formats``: {source: its format}."""
    tables = [read_table(path) for path in ([images] if isinstance(images, str) else images)]
    conflict_table = conflicts(tables, families(formats))
    write_table(conflicts_out, conflict_table, CONFLICTS)
    if conflict_table.height:
        summary = ", ".join(
            f"{source}: {number}" for source, number in conflict_table["source"].value_counts().sort("source").rows()
        )
        log.warning("images whose subject another source of the mix has in another split leave it: %s", summary)
