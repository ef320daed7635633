"""The columns that docs/reference/files.md tells are those of a finished run's tables."""

import re

import polars as pl
import pytest

from conftest import ROOT
from cxr.base.columns import Column, markdown, schema
from cxr.workflow.file_columns import TABLES, filled

PAGE = (ROOT / "docs/reference/files.md").read_text(encoding="utf-8")
ASKED = {"results/ablation/points.tsv", "results/evaluation/{run}/pairs.parquet"}
"""Made by targets that bare `snakemake` leaves out."""


def test_a_column_is_a_row_of_the_page():
    columns = {
        "a": Column(pl.String, "First."),
        "b": Column(pl.List(pl.Struct({"x": pl.Int64})), "Second.", "pixels"),
    }
    assert markdown(columns).splitlines()[2:] == [
        "| `a` | text |  | First. |",
        "| `b` | list of {x: int64} | pixels | Second. |",
    ]
    assert schema(columns) == {"a": pl.String, "b": pl.List(pl.Struct({"x": pl.Int64}))}


def test_what_stands_between_the_marks_is_made_anew():
    page = "before\n<!-- columns of results/<stage>/excluded.parquet -->\nold\n<!-- end -->\nafter\n"
    made = filled(page)
    assert made.startswith("before\n<!-- columns of results/<stage>/excluded.parquet -->\n| column |")
    assert made.endswith("|\n<!-- end -->\nafter\n")
    assert "old" not in made


def test_every_table_stands_on_the_page_once():
    assert sorted(re.findall(r"<!-- columns of (.+?) -->", PAGE)) == sorted(TABLES)


@pytest.mark.parametrize("path", sorted(TABLES.keys() - ASKED))
def test_a_finished_run_has_these_columns(path, workflow_run):
    pattern = path.replace("{shard}", "[0-9][0-9]").replace("{thresholds}", "default").replace("<stage>", "*")
    found = sorted(workflow_run.glob(pattern))
    assert found
    for file in found:
        written = pl.read_parquet_schema(file)
        told = schema(TABLES[path])
        added = {"thresholds"} if path.endswith("<stage>/excluded.parquet") else set()
        assert {name: kind for name, kind in written.items() if name not in added} == told, file
