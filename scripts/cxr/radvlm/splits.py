"""Splits of the mix: no subject is in two splits of a family, that is, of sources that share subjects."""

from collections.abc import Mapping, Sequence

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.jobs import log
from cxr.base.tables import read_table, write_table

ORDER = ("test", "validate", "train")
"""Priority of the splits for a subject that occurs in several."""


def find_conflicts(images: Sequence[pl.DataFrame], family: Mapping[str, str]) -> pl.DataFrame:
    """Return the images (source, image_id, study_id, split, kept) whose subject belongs to another split.

    ``images``: image tables of the sources; ``family``: {source: its family}. A subject in several splits of a family
    is kept in test, else in validate, so that no evaluated subject was used for training.
    """
    columns = ["source", "image_id", "study_id", "subject_id", "split"]
    table = pl.concat([table.select(columns) for table in images])
    rank = pl.col("split").replace_strict(list(ORDER), range(len(ORDER)), return_dtype=pl.Int64)
    whose = pl.struct(pl.col("source").replace_strict(dict(family)), "subject_id")
    table = table.with_columns(first=rank.min().over(whose))
    kept_split = pl.col("first").replace_strict(range(len(ORDER)), list(ORDER), return_dtype=pl.String)
    torn = table.with_columns(kept=kept_split).filter(pl.col("split") != pl.col("kept"))
    return torn.select("source", "image_id", "study_id", "split", "kept").sort("source", "image_id")


CONFLICTS: Columns = {
    "source": Column(pl.String, "Source."),
    "image_id": Column(pl.String, "Image that leaves the mix: split_conflict."),
    "study_id": Column(pl.String, "Its study."),
    "split": Column(pl.String, "Split that its source gives it."),
    "kept": Column(pl.String, "Split that its subject is kept in."),
}


def run(*, images: Sequence[str], conflicts_out: str, families: Mapping[str, str]) -> None:
    """Write the images excluded from the mix. ``images``: image tables; ``families``: {source: family}."""
    tables = list(map(read_table, images))
    conflict_table = find_conflicts(tables, families)
    write_table(conflicts_out, conflict_table, CONFLICTS)
    if conflict_table.height:
        rows = conflict_table["source"].value_counts().sort("source").rows()
        summary = ", ".join(f"{source}: {number}" for source, number in rows)
        log.warning("images excluded because a related source has their subject in another split: %s", summary)
