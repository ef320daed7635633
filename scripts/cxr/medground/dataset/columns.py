"""Columns of the table of tokens."""

import polars as pl

from cxr.base.columns import Column, Columns

TOKENS: Columns = {
    "source": Column(pl.String, "Source; `total`: all."),
    "split": Column(pl.String, "Split, or zero_shot."),
    "queries": Column(pl.Int64, "Accepted queries."),
    "query_tokens": Column(pl.Float64, "Mean number of tokens of a query."),
    "line_tokens": Column(pl.Float64, "The same of question and answer as a model is trained on; without its picture."),
    "total_tokens": Column(pl.Int64, "Tokens of all questions and answers: Table 2's unit, as far as the paper tells."),
}
ENTITIES: Columns = {
    "query": Column(pl.String, "Text of a query, or of a label baseline; each once."),
    "concepts": Column(pl.Int64, "Distinct clinical concepts in it."),
}
