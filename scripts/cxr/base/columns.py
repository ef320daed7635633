"""Declarations of table columns. The polars schema and the documentation of a table are built from them."""

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import polars as pl

from cxr.base.paths import RESOURCES

Kind: TypeAlias = pl.DataType | type[pl.DataType]
KINDS: dict[str, Kind] = {
    "text": pl.String, "true or false": pl.Boolean, "int64": pl.Int64, "int32": pl.Int32, "uint8": pl.UInt8,
    "float32": pl.Float32, "float64": pl.Float64,
}  # fmt: skip
"""Types of columns: {name in declarations and in the documentation: polars type}."""


@dataclass(frozen=True)
class Column:
    """One column of a table: its polars type, one sentence on its meaning, and the unit of its values ("" for none)."""

    kind: Kind
    meaning: str
    unit: str = ""


Columns = dict[str, Column]


def read_columns(stage: str, table: str) -> Columns:
    """Return the columns of a table, which ``resources/columns/{stage}.toml`` declares as name = [type, meaning, unit].

    The type is a name in :data:`KINDS`, [type] for a list, or {field = type} for a structure. The calling module must
    list the toml file in its ``RESOURCE_FILES``, so that a change of the file reruns the stage.
    """
    return {name: Column(_parse_kind(kind), *texts) for name, (kind, *texts) in _read_tables(stage)[table].items()}


@cache
def _read_tables(stage: str) -> dict[str, dict]:
    return tomllib.loads((RESOURCES / f"columns/{stage}.toml").read_text(encoding="utf-8"))


def _parse_kind(kind: Any) -> Kind:
    if isinstance(kind, list):
        return pl.List(_parse_kind(kind[0]))
    if isinstance(kind, dict):
        return pl.Struct({name: _parse_kind(part) for name, part in kind.items()})
    return KINDS[kind]


def schema(columns: Columns) -> dict[str, Kind]:
    """Return the polars schema of the columns, {name: type}."""
    return {name: column.kind for name, column in columns.items()}


def edge_columns(meaning: str, unit: str) -> Columns:
    """Return the columns x1, y1, x2, y2 of a box. ``meaning`` is the text after "Left edge", "Upper edge" and so on."""
    edges = {"x1": "Left", "y1": "Upper", "x2": "Right", "y2": "Lower"}
    return {name: Column(pl.Float64, f"{edge} edge{meaning}.", unit) for name, edge in edges.items()}


def interval_columns(name: str, interval: str, unit: str = "") -> Columns:
    """Return the columns <name>_low and <name>_high. ``interval``: words for the interval, as "its 95 % interval"."""
    ends = {"low": f"Lower end of {interval}.", "high": "Upper end."}
    return {f"{name}_{end}".lstrip("_"): Column(pl.Float64, meaning, unit) for end, meaning in ends.items()}


def check_columns(table: pl.DataFrame, columns: Columns, name: str) -> None:
    """Raise ValueError unless a table has exactly ``columns``, in this order. The message calls the table ``name``."""
    actual, declared = dict(table.schema), schema(columns)
    if actual != declared or list(actual) != list(declared):
        raise ValueError(f"{name} has the columns {actual}, not the declared columns {declared}")


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
    return next((name for name, dtype in KINDS.items() if kind == dtype), str(kind).lower())
