"""Columns of the tables that the stage vlm_answers writes."""

import polars as pl

from cxr.base.columns import Column, Columns

UNUSED: Columns = {
    "line": Column(pl.Int64, "Line of the file of answers, from 1."),
    "sample_id": Column(pl.String, "Sample that it names; empty where it names none."),
    "reason": Column(
        pl.String,
        "`unknown_sample`: none of this name is asked, or it has no such turn; `duplicate`: an earlier line answers "
        "it too, so that it failed; `bad_line`: no JSON object with sample_id and text.",
    ),
}
SELECTED: Columns = {
    "task": Column(pl.String, "Task; `grounding` of queries."),
    "source": Column(pl.String, "Source."),
    "samples": Column(pl.Int64, "Samples of the set."),
    "asked": Column(pl.Int64, "Of them, those that are asked."),
}
