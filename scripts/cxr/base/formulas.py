"""Guarding the texts of TSV and CSV tables: a text that a spreadsheet would run as a formula gets an apostrophe.

A report may begin with "-", an id with "=". A text that already begins with apostrophes before such a sign gets one
more, so that reading restores the original. Numbers are not guarded.
"""

import re

import polars as pl

_START, _SIGN, _NUMBER = r"^[=@\t\r]", r"^[+-]", r"^[+-][0-9.,eE+\-% ]*$"


def _is_formula(text: pl.Expr) -> pl.Expr:
    text = text.str.strip_chars_start("'")
    return text.str.contains(_START) | (text.str.contains(_SIGN) & ~text.str.contains(_NUMBER))


def _texts(table: pl.DataFrame) -> list[str]:
    return [name for name, kind in table.schema.items() if kind == pl.String]


def guard_formulas(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table with its texts guarded, for writing."""
    return table.with_columns(
        pl.when(_is_formula(pl.col(name))).then("'" + pl.col(name)).otherwise(pl.col(name)).alias(name)
        for name in _texts(table)
    )


def unguard_formulas(table: pl.DataFrame) -> pl.DataFrame:
    """Return a table without the apostrophes that :func:`guard_formulas` added."""
    return table.with_columns(
        pl.when(pl.col(name).str.starts_with("'") & _is_formula(pl.col(name)))
        .then(pl.col(name).str.slice(1))
        .otherwise(pl.col(name))
        .alias(name)
        for name in _texts(table)
    )


def unguard_cell(cell: str) -> str:
    """Return one cell as :func:`unguard_formulas` does."""
    inner = cell.lstrip("'")
    formula = re.match(_START, inner) or (re.match(_SIGN, inner) and not re.match(_NUMBER, inner))
    return cell[1:] if cell.startswith("'") and formula else cell
