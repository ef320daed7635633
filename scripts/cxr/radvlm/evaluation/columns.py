"""Columns of the tables that the stage radvlm_evaluation writes."""

from pathlib import Path

import polars as pl

from cxr.base.columns import Columns, read_columns
from cxr.base.tables import read_table

RESOURCE_FILES = ("columns/radvlm_evaluation.toml",)
SCORES = read_columns("radvlm_evaluation", "scores")
SAMPLES = read_columns("radvlm_evaluation", "samples")
COUNTS = read_columns("radvlm_evaluation", "counts")
CHECK = read_columns("radvlm_evaluation", "check")
TABLES = read_columns("radvlm_evaluation", "tables")


def read_scores(path: str | Path, columns: Columns = SCORES) -> pl.DataFrame:
    """Return a table of scores. Its empty numeric cells become null. Raises StoreError like :func:`read_table`."""
    table = read_table(path)
    numbers = [name for name, column in columns.items() if column.kind in (pl.Float64, pl.Int64)]
    return table.with_columns(pl.col(name).cast(columns[name].kind, strict=False) for name in numbers)
