"""Declarations of table columns, from which the polars schema and the documentation of a table are built."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import polars as pl

Kind: TypeAlias = pl.DataType | type[pl.DataType]


@dataclass(frozen=True)
class Column:
    """One column. ``kind``: polars type; ``meaning``: one sentence; ``unit``: unit of the values, "" if none."""

    kind: Kind
    meaning: str
    unit: str = ""


Columns = dict[str, Column]


def schema(columns: Columns) -> dict[str, Kind]:
    """Return the polars schema, {name: type}."""
    return {name: column.kind for name, column in columns.items()}


def edge_columns(meaning: str, unit: str) -> Columns:
    """Return the columns x1, y1, x2 and y2 of a box; ``meaning``: text that follows "Left edge", "Upper edge" etc."""
    edges = {"x1": "Left", "y1": "Upper", "x2": "Right", "y2": "Lower"}
    return {name: Column(pl.Float64, f"{edge} edge{meaning}.", unit) for name, edge in edges.items()}


def interval_columns(name: str, interval: str, unit: str = "") -> Columns:
    """Return the columns low and high, after ``name`` and _, of a value; ``interval``: such as "its 95 % interval"."""
    ends = {"low": f"Lower end of {interval}.", "high": "Upper end."}
    return {f"{name}_{end}".lstrip("_"): Column(pl.Float64, meaning, unit) for end, meaning in ends.items()}


def check_columns(table: pl.DataFrame, columns: Columns, name: str) -> None:
    """Raise ValueError unless a table has the declared columns, in order and type; ``name``: for the message."""
    actual, declared = dict(table.schema), schema(columns)
    if actual != declared or list(actual) != list(declared):
        raise ValueError(f"{name}: its columns are {actual}, declared are {declared}")


def markdown_table(columns: Columns) -> str:
    """Return the columns as a Markdown table, one line per column."""
    rows = [
        f"| `{name}` | {_type_name(column.kind)} | {column.unit} | {column.meaning} |"
        for name, column in columns.items()
    ]
    return "\n".join(["| column | type | unit | meaning |", "|---|---|---|---|", *rows]) + "\n"


def _type_name(kind: Any) -> str:
    if isinstance(kind, pl.List):
        return f"list of {_type_name(kind.inner)}"
    if isinstance(kind, pl.Struct):
        return "{" + ", ".join(f"{part.name}: {_type_name(part.dtype)}" for part in kind.fields) + "}"
    names = {pl.String: "text", pl.Boolean: "true or false"}
    return next((name for dtype, name in names.items() if kind == dtype), str(kind).lower())
