"""Tables of any dataset with CheXpert's labels: one row per image or study, one column per label."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxr.base.user_tables import read_frame, require_columns

LABELS = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema", "Consolidation",
    "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture", "Support Devices",
)  # fmt: skip
VALUE_BY_CELL = {
    f"{number}{end}": value
    for number, value in ((1, "present"), (0, "absent"), (-1, "uncertain"))
    for end in ("", ".0")
}
"""{cell: the label that the cell stands for}; an empty cell stands for no label."""
Names = Sequence[str]
SEX = {"female": "F", "f": "F", "male": "M", "m": "M"}


def read_columns(
    key: str, path: Path, kind: str, required: Names, besides: Names = (), *, ids: Names, words: Names = ()
) -> pl.DataFrame:
    """Return the columns ``required`` and ``besides`` of a table as stripped strings. ``besides``: optional columns, ""
    if absent. ``ids``: columns of identifiers. ``words``: columns of single words, which reveal rows that a stray
    quotation mark has joined. Raises UserError, with setting ``key`` and dataset ``kind``, for a missing column."""
    table = read_frame(path, key, (*required, *besides), ids=ids, words=words)
    require_columns(table.columns, required, path, key, f"give a file of {kind}")
    more = [pl.lit("").alias(name) for name in besides if name not in table.columns]
    return table.with_columns(more).select(pl.col(*required, *besides).str.strip_chars())


def decode_labels(table: pl.DataFrame, labels: Sequence[str] = LABELS) -> pl.DataFrame:
    """Return a table in which label cells 1, 0 and -1 are "present", "absent" and "uncertain", and others are null."""
    return table.with_columns(pl.col(*labels).replace_strict(VALUE_BY_CELL, default=None, return_dtype=pl.String))


def decode_sex(column: str) -> pl.Expr:
    """Return the polars expression that maps a column of strings to F, M or null."""
    return pl.col(column).str.to_lowercase().replace_strict(SEX, default=None, return_dtype=pl.String)


def normalise_id(column: str) -> pl.Expr:
    """Return the polars expression that removes from a column of ids a trailing ".0", which some programs add."""
    return pl.col(column).str.replace(r"^(\d+)\.0$", "$1")


def count_unknown_cells(table: pl.DataFrame, labels: Sequence[str] = LABELS) -> dict[str, int]:
    """Return {label: number of cells that are not 1, 0, -1 or empty} of a table of strings, without counts of 0."""
    counts = table.select((~pl.col(name).is_in([*VALUE_BY_CELL, ""])).sum() for name in labels).row(0, named=True)
    return {name: number for name, number in counts.items() if number}
