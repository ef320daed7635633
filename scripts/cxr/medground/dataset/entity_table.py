"""Columns of the table of clinical concepts; scispaCy's environment has no OpenCV, so it imports no more."""

import polars as pl

from cxr.base.columns import Column, Columns

ENTITIES: Columns = {
    "query": Column(pl.String, "Text of a query, or of a label baseline; each once."),
    "concepts": Column(pl.Int64, "Distinct clinical concepts in it."),
}
