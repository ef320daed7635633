"""Table 1: what a mix holds, task by task and source by source, beside the published mixes."""

from collections.abc import Sequence

import polars as pl

from cxr.base.columns import schema
from cxr.radvlm.instructions.columns import TABLE1
from cxr.radvlm.instructions.mix import TRAIN, Row

NOT_CONFIGURED = "not configured"
SUMMED = ("facts", "pairs", "lines", "validate", "evaluation", "paper", "code")


def table1(rows: Sequence[Row], index: pl.DataFrame) -> pl.DataFrame:
    """Return the table of the rows of a mix. ``index``: of all lines that were written, as INDEX declares."""
    records = []
    for row in rows:
        source_index = index.filter((pl.col("task") == row.task) & (pl.col("source") == row.source))
        train = source_index.filter(split=TRAIN)
        paper, code = (
            None if published is None else published[0] * published[1] for published in (row.paper, row.code)
        )
        records.append({
            "task": row.task, "source": row.source, "facts": int(train["facts"].sum()),
            "pairs": train["unit"].n_unique(), "passes": row.repeat, "lines": train.height,
            "validate": source_index.filter(split="validate").height,
            "evaluation": source_index.filter(split="test").height,
            "paper": paper, "code": code, "difference": None if paper is None else train.height - paper,
            "note": "" if row.used else NOT_CONFIGURED,
        })  # fmt: skip
    total = {name: sum(row[name] or 0 for row in records) for name in SUMMED}
    published_totals = {
        name: total[name] if any(row[name] is not None for row in records) else None for name in ("paper", "code")
    }
    less = None if published_totals["paper"] is None else total["lines"] - published_totals["paper"]
    last = {"task": "total", "source": "", "passes": None, "difference": less, "note": ""}
    return pl.DataFrame([*records, total | published_totals | last], schema=schema(TABLE1))
