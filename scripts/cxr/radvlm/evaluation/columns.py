"""Columns of the tables that the stage radvlm_evaluation writes."""

from pathlib import Path

import polars as pl

from cxr.base.columns import Column, Columns, interval_columns
from cxr.base.tables import read_table

SCORES: Columns = {
    "task": Column(pl.String, "Task."),
    "source": Column(pl.String, "Source."),
    "metric": Column(pl.String, "Measure ([radvlm.md](../systems/radvlm.md#what-a-number-means))."),
    "part": Column(pl.String, "`all`, or the label, finding or region of the score."),
    "reference": Column(pl.String, "filtered or original: text that a report is compared with; empty for other tasks."),
    "samples": Column(pl.Int64, "Number of samples of the task and source."),
    "subjects": Column(pl.Int64, "Number of patients of these samples."),
    "failed": Column(pl.Int64, "Number of samples without a full answer."),
    "value": Column(pl.Float64, "Score; empty if nothing can be measured.", "%, or the metric's own"),
    **interval_columns("", "its interval, by patient"),
    "blind": Column(
        pl.Float64, "Score without the image: of a mean training box, or of the commonest training answer."
    ),
    "gain": Column(pl.Float64, "value minus blind."),
    **interval_columns("gain", "its interval"),
    "exchanged": Column(pl.Float64, "Score of answers about images of other patients."),
    "drop": Column(pl.Float64, "value of the samples that have an exchanged image, minus exchanged."),
    **interval_columns("drop", "its interval"),
}
SAMPLES: Columns = {
    "sample_id": Column(pl.String, "Sample id."),
    "task": Column(pl.String, "Task of the sample."),
    "source": Column(pl.String, "Source of the sample."),
    "subject_id": Column(pl.String, "Patient id."),
    "image_id": Column(pl.String, "Image id."),
    "asked": Column(pl.String, "Region, finding or phrase that the sample asks about."),
    "failure": Column(pl.String, "Reason why there is no full answer; empty if there is one."),
    "metric": Column(pl.String, "First measure of the task."),
    "value": Column(pl.Float64, "Value of the sample; empty if it is excluded."),
    "blind": Column(pl.Float64, "Value of an answer without the image."),
    "exchanged": Column(pl.Float64, "Value of the answer about another patient's image."),
}
COUNTS: Columns = {
    "answers": Column(pl.String, "Answers that are counted: test, or exchanged (images)."),
    "task": Column(pl.String, "Task, or `all`; empty for answers to unknown questions."),
    "outcome": Column(
        pl.String,
        "`asked`, `scored`, `unscored` (no judge's score), `unknown` (question), reason for no answer, or `not_asked`.",
    ),
    "number": Column(pl.Int64, "Number; that of asked is the sum of scored, unscored and missing answers."),
}
CHECK: Columns = {
    "check": Column(pl.String, "Condition that is checked."),
    "value": Column(pl.Float64, "Mean score, 0 to 10; for comparisons of scores, 1 if they are equal, else 0."),
    "target": Column(pl.String, "Required value."),
    "conversations": Column(pl.Int64, "Number of judged conversations."),
    "passed": Column(pl.Boolean, "Whether the value is as required."),
}
TABLES: Columns = {
    "table": Column(
        pl.String, "table2 to table6 and figure4 of the paper; table6b: effect of ILS; ours: other scores."
    ),
    "by": Column(pl.String, "ours, blind (answers without the image), people (human readers compared), or paper."),
    "model": Column(pl.String, "Run, model, or the task that a run of the paper was trained on."),
    "source": Column(pl.String, "Source of the samples; empty for the paper."),
    "column": Column(pl.String, "Column of the table."),
    "value": Column(pl.Float64, "Score; in Table 2, 1 for an ability, else 0.", "%, or 0 to 10 of a judge"),
    **interval_columns("", "its interval, by patient"),
    "exchanged": Column(pl.Float64, "Score with images of other patients."),
    "samples": Column(pl.Int64, "Number of samples; null for the paper."),
    "note": Column(pl.String, "Remark on the score."),
}


def read_scores(path: str | Path, columns: Columns = SCORES) -> pl.DataFrame:
    """Return a table of scores. Its empty numeric cells become null. Raises StoreError like :func:`read_table`."""
    table = read_table(path)
    numbers = [name for name, column in columns.items() if column.kind in (pl.Float64, pl.Int64)]
    return table.with_columns(pl.col(name).cast(columns[name].kind, strict=False) for name in numbers)
