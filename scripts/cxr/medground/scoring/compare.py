"""One table of the scores of all runs, of the blind baselines, and of the paper's Tables 3 and 4."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import yaml

from cxr.base.columns import Columns, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import read_table, write_table
from cxr.medground.scoring.columns import BLIND, COMPARISON, SCORES, SENSITIVITY

RESOURCE_FILES = ("medground/paper_tables.yaml",)


@dataclass(frozen=True)
class ComparisonOptions:
    """runs, zero_shot: names, in the order of their tables; tau: of the Semantic Sensitivity."""

    runs: list
    zero_shot: list
    tau: float


def _row(by: str, table: str, model: str, source: str, number: int | None, *values: float | None) -> dict:
    value, low, high = (*values, None, None)[:3]
    return {
        "by": by, "table": table, "model": model, "source": source, "number": number, "value": value, "low": low,
        "high": high,
    }  # fmt: skip


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


def zero_shot_rows(run: str, scores: pl.DataFrame) -> Iterator[dict]:
    """Yield the rows of a run on zero-shot sources: mean IoU with its blind baselines."""
    for row in run_rows(run, scores, pl.DataFrame(schema=schema(SENSITIVITY)), 0.5):
        yield row | {"table": "zero_shot"}


def paper_rows() -> Iterator[dict]:
    """Yield the rows of the paper's Tables 3 and 4, as printed."""
    tables = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
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
    *, scored: list[str], pairs_scored: list[str], comparison: str, options: ComparisonOptions,
    zero_shot: list[str] | None = None,
) -> None:  # fmt: skip
    """Write the scores of the runs, in the options' order, and of the paper's models.

    ``zero_shot``: scores of the runs on zero-shot sources.
    """
    rows = list(_all_rows(options.runs, scored, pairs_scored, options.tau))
    for run, path in zip(options.zero_shot, zero_shot or (), strict=True):
        rows += zero_shot_rows(run, read_declared(path, SCORES))
    seen_keys, unique_rows = set(), []
    for row in rows:  # most baselines are the same for all runs
        key = tuple(row[part] for part in ("by", "table", "model", "source"))
        if key not in seen_keys:
            seen_keys.add(key)
            unique_rows.append(row)
    write_table(Path(comparison), pl.DataFrame(unique_rows, schema=schema(COMPARISON)), COMPARISON)


def _all_rows(runs: Sequence[str], scored: Sequence[str], pairs: Sequence[str], tau: float) -> Iterator[dict]:
    for run, scores_path, pairs_path in zip(runs, scored, pairs, strict=True):
        yield from run_rows(run, read_declared(scores_path, SCORES), read_declared(pairs_path, SENSITIVITY), tau)
    yield from paper_rows()
