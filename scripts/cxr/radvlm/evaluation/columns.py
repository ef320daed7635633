"""Columns of the tables that the stage radvlm_evaluation writes."""

from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, interval_columns
from cxr.base.tables import read_table

SCORES: Columns = {
    "task": Column(pl.String, "Task."),
    "source": Column(pl.String, "Source."),
    "metric": Column(pl.String, "Measure ([radvlm.md](../systems/radvlm.md#what-a-number-means))."),
    "part": Column(pl.String, "`all`, or the label, finding or region that it is of."),
    "reference": Column(pl.String, "filtered or original: the text that a report is compared with; else empty."),
    "samples": Column(pl.Int64, "Samples of the task and source."),
    "subjects": Column(pl.Int64, "Their patients."),
    "failed": Column(pl.Int64, "Of the samples, those without a full answer."),
    "value": Column(pl.Float64, "The score; empty where there is nothing to measure.", "%, or the metric's own"),
    **interval_columns("", "its interval, by patient"),
    "blind": Column(pl.Float64, "Score of answers that look at nothing: a mean training box, or the commonest answer."),
    "gain": Column(pl.Float64, "The score less that."),
    **interval_columns("gain", "its interval"),
    "exchanged": Column(pl.Float64, "Score of answers about pictures of other patients."),
    "drop": Column(pl.Float64, "The score of the samples with such a picture, less that."),
    **interval_columns("drop", "its interval"),
}
SAMPLES: Columns = {
    "sample_id": Column(pl.String, "Sample."),
    "task": Column(pl.String, "Its task."),
    "source": Column(pl.String, "Its source."),
    "subject_id": Column(pl.String, "Its patient."),
    "image_id": Column(pl.String, "Its image."),
    "asked": Column(pl.String, "What it asks for: a region, finding or phrase."),
    "failure": Column(pl.String, "Why it has no full answer; empty with one."),
    "metric": Column(pl.String, "The first measure of the task."),
    "value": Column(pl.Float64, "The sample's own; empty where it is left out."),
    "blind": Column(pl.Float64, "That of an answer that looks at nothing."),
    "exchanged": Column(pl.Float64, "That of the answer about another patient's picture."),
}
COUNTS: Columns = {
    "answers": Column(pl.String, "test, or exchanged."),
    "task": Column(pl.String, "Task, or `all`; empty of answers that no one asked."),
    "outcome": Column(
        pl.String, "`asked`, `scored`, `unscored` (not judged), `unknown`, why there is no answer, or `not_asked`."
    ),
    "number": Column(pl.Int64, "How many; the scored ones and those that are not are the asked ones."),
}
CHECK: Columns = {
    "check": Column(pl.String, "What the judge was given."),
    "value": Column(pl.Float64, "Mean score, 0 to 10; 1 or 0 where scores are compared."),
    "target": Column(pl.String, "What it must be."),
    "conversations": Column(pl.Int64, "Conversations that were judged."),
    "passed": Column(pl.Boolean, "Whether it is so."),
}
TABLES: Columns = {
    "table": Column(pl.String, "table2 to table6 and figure4 of the paper; table6b: what ILS adds; ours: all else."),
    "by": Column(pl.String, "ours, blind (answers that look at nothing), people (readers against readers), or paper."),
    "model": Column(pl.String, "Run, model, or the task that a run of the paper was trained on."),
    "source": Column(pl.String, "Source of the samples; empty of the paper."),
    "column": Column(pl.String, "Column of the table."),
    "value": Column(pl.Float64, "Score; 1 or 0 in Table 2.", "%, or 0 to 10 of a judge"),
    **interval_columns("", "its interval, by patient"),
    "exchanged": Column(pl.Float64, "Score with other patients' pictures."),
    "samples": Column(pl.Int64, "Samples; null of the paper."),
    "note": Column(pl.String, "What is to be known of the cell."),
}


def read_scores(path: str | Path, columns: Columns = SCORES) -> pl.DataFrame:
    """Read a table of scores; empty numeric cells become null. Raises StoreError like :func:`read_table`."""
    table = read_table(path)
    numbers = [name for name, column in columns.items() if column.kind in (pl.Float64, pl.Int64)]
    return table.with_columns(pl.col(name).cast(columns[name].kind, strict=False) for name in numbers)
