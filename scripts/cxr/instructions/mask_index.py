"""Where the mask of a ``mask_id`` lies: its shard and row, a table beside the masks of a dataset."""

from collections.abc import Iterable

import polars as pl

from cxr.base.columns import Column, Columns, schema

INDEX: Columns = {
    "mask_id": Column(pl.String, "Mask."),
    "shard": Column(pl.String, "Shard whose HDF5 file holds it."),
    "row": Column(pl.Int64, "Its row there, from 0."),
}


def index_table(rows: Iterable[tuple[str, str, int]]) -> pl.DataFrame:
    """Return the table of (mask_id, shard, row), in the order of the mask ids."""
    return pl.DataFrame(list(rows), schema=schema(INDEX), orient="row").sort("mask_id")
