"""One conservation table of all stages, from source rows to scored samples."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.conservation import ALL, CONSERVED, CountRow, counted_rows
from cxr.base.tables import read_table, write_table
from cxr.radvlm.evaluation.answers import UNKNOWN
from cxr.radvlm.evaluation.outcomes import NOT_ASKED

ASKED, PASSES = "asked", "passes"
CONSERVATION: Columns = {
    "stage": Column(pl.String, "Stage."),
    "of": Column(pl.String, "Source, mix, or run or model that it is of."),
    **CONSERVED,
}


def run(
    *, sources: Sequence[str], conversations: Sequence[str], instructions: Sequence[str], tunings: Sequence[str],
    counts: Sequence[str], conservation: str,
) -> None:  # fmt: skip
    """Merge all conservation tables into one; ``stage`` and ``of`` come from each table's path.

    Raises AssertionError if a table does not add up.
    """
    stages = {
        "radvlm_sources": (sources, _source_rows), "radvlm_conversations": (conversations, _conversation_rows),
        "radvlm_instructions": (instructions, _instruction_rows), "vlm_tuning": (tunings, _tuning_rows),
        "radvlm_evaluation": (counts, _sample_rows),
    }  # fmt: skip
    rows = [
        (stage, name, *row)
        for stage, (paths, rows_of) in stages.items()
        for path in ([paths] if isinstance(paths, str) else paths)
        for name in [Path(path).parent.name]
        for row in check_rows(f"{stage}, {name}", rows_of(read_table(path)))
    ]
    write_table(conservation, pl.DataFrame(rows, schema=schema(CONSERVATION), orient="row"), CONSERVATION)


def check_rows(where: str, rows: Iterable[CountRow]) -> Iterator[CountRow]:
    """Yield the rows grouped by kind. Raises AssertionError if a kind does not add up to its `all`."""
    counts_by_kind: dict[str, dict[str, int]] = {}
    for record_kind, outcome, number in rows:
        counts_by_kind.setdefault(record_kind, {})[outcome] = number
    for record_kind, parts in counts_by_kind.items():
        yield from counted_rows(where, record_kind, parts.pop(ALL, 0), parts)


def _source_rows(table: pl.DataFrame) -> Iterator[CountRow]:
    yield from table.select(list(CONSERVED)).iter_rows()


def _conversation_rows(table: pl.DataFrame) -> Iterator[CountRow]:
    for row in table.iter_rows(named=True):
        outcome = ALL if row["outcome"] == ASKED else row["outcome"]
        yield f"{row['kind']}, {row['split']}", outcome, row["conversations"]


def _instruction_rows(table: pl.DataFrame) -> Iterator[CountRow]:
    for row in table.iter_rows(named=True):
        yield ", ".join(filter(None, (row["source"], row["what"]))), row["outcome"], row["number"]


def _tuning_rows(table: pl.DataFrame) -> Iterator[CountRow]:
    """Yield the outcomes of lines and samples; the kind of samples names the number of passes."""
    (passes,) = table.filter(what=PASSES)["number"]
    for record_kind, outcome, number in table.filter(pl.col("what") != PASSES).iter_rows():
        yield f"samples of {passes} passes" if record_kind == "samples" else record_kind, outcome, number


def _sample_rows(table: pl.DataFrame) -> Iterator[CountRow]:
    """Yield the outcomes of the requested samples."""
    for row in table.filter(~pl.col("outcome").is_in([UNKNOWN, NOT_ASKED])).iter_rows(named=True):
        yield f"{row['answers']}, {row['task']}", ALL if row["outcome"] == ASKED else row["outcome"], row["number"]
