"""One table of the scores of all runs, of the blind baselines, and of the paper's Tables 3 and 4."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from cxr.base.columns import Columns, schema
from cxr.base.resources import load_resource
from cxr.base.tables import read_table, write_rows
from cxr.medground.scoring.columns import BLIND, COMPARISON, SCORES, SENSITIVITY

RESOURCE_FILES = ("medground/paper_tables.yaml",)


def _row(by: str, table: str, model: str, source: str, number: int | None, *values: float | None) -> dict:
    return dict(zip(COMPARISON, (by, table, model, source, number, *(*values, None, None)[:3]), strict=True))


def run_rows(run: str, scores: pl.DataFrame, pairs: pl.DataFrame, tau: float) -> Iterator[dict]:
    """Yield the rows of a run: mean IoU and Semantic Sensitivity at ``tau``, each with its blind baselines."""
    for row in scores.filter(part="all").iter_rows(named=True):
        yield _row("ours", "iou", run, row["source"], row["queries"], row["iou"], row["iou_low"], row["iou_high"])
        for name in (name for name in BLIND if row[name] is not None):
            model = f"{run}: {name}" if name == "shuffled" else name
            yield _row("blind", "iou", model, row["source"], row["queries"], row[name])
    for row in pairs.filter((pl.col("pairs_of") == "all") & (pl.col("tau") == tau)).iter_rows(named=True):
        yield _row("ours", "sensitivity", run, row["source"], row["pairs"], row["sensitivity"], row["low"], row["high"])
        yield _row("blind", "sensitivity", f"{run}: swapped", row["source"], row["pairs"], row["swapped"])


def paper_rows() -> Iterator[dict]:
    """Yield the rows of the paper's Tables 3 and 4, as printed."""
    tables = load_resource(RESOURCE_FILES[0])
    third, fourth = tables["table3"], tables["table4"]
    for state in ("base", "finetuned", "delta"):
        for model, values in third[state].items():
            for source, value in zip(third["columns"], values, strict=True):
                yield _row("paper", "iou", f"{model}, {state}", source, None, float(value))
    for model, states in fourth["rows"].items():
        for state, values in states.items():
            for source, value in zip(fourth["columns"], values, strict=True):
                yield _row("paper", "sensitivity", f"{model}, {state}", source, None, float(value))


def read_declared(path: str | Path, columns: Columns) -> pl.DataFrame:
    """Return a table; a column without values gets its declared type, which a text file does not store."""
    table = read_table(path)
    empty = [name for name in table.columns if table[name].dtype == pl.String and columns[name].kind != pl.String]
    return table.with_columns(pl.lit(None, columns[name].kind).alias(name) for name in empty)


def run_comparison(
    *, scored: list[str], pairs_scored: list[str], comparison: str, runs: list[str], zero_shot_runs: list[str],
    tau: float, zero_shot: list[str] | None = None,
) -> None:  # fmt: skip
    """Write the scores of the runs, in their order, and of the paper's models.

    ``zero_shot``: scores of ``zero_shot_runs`` on zero-shot sources; ``tau``: of the Semantic Sensitivity.
    """
    rows = []
    for run, scores, pairs in zip(runs, scored, pairs_scored, strict=True):
        rows += run_rows(run, read_declared(scores, SCORES), read_declared(pairs, SENSITIVITY), tau)
    rows += paper_rows()
    for run, path in zip(zero_shot_runs, zero_shot or (), strict=True):
        zero_shot_rows = run_rows(run, read_declared(path, SCORES), pl.DataFrame(schema=schema(SENSITIVITY)), tau)
        rows += (row | {"table": "zero_shot"} for row in zero_shot_rows)
    unique_rows: dict[tuple, dict] = {}
    for row in rows:  # most baselines are the same for all runs
        unique_rows.setdefault(tuple(row[part] for part in ("by", "table", "model", "source")), row)
    write_rows(comparison, unique_rows.values(), COMPARISON)
