"""Every table that a run writes has declared columns, which a command prints."""

import ast
import re

import polars as pl
import pytest

import parsed
from conftest import ROOT
from cxr.base import columns as declarations
from cxr.base.columns import Column, markdown_table, read_columns, schema
from cxr.base.exclusions import STAGES
from cxr.base.tables import read_table, write_table
from declared_tables import ENDINGS, tables_of
from table_columns import SAME_COLUMNS, TABLES, main, path_of

SCRIPTS = ROOT / "scripts" / "cxr"
PLAIN = {
    "base/tables.py",
    "reporting/release/parquet.py",
    "semisyn/dataset/export.py",
    "medground/dataset/export.py",
}
"""Modules that may call polars' own writers: write_table's, and those of packages, whose files `datasets` reads."""
ASKED = (
    "ablation",
    "agreement",
    "evaluation",
    "medground",
    "paraphrase",
    "radvlm",
    "release",
    "review",
    "semisyn",
    "training",
    "vlm",
    "weights",
)
"""Stages that bare `snakemake` leaves out; the tests of their targets hold their tables against the declared ones."""
NOT_BARE = {"results/dataset/mimic_ils/pictures.tsv", "results/reports/agreement.tsv"}
NOT_BARE |= {"results/reports/disagreements.tsv"}


def test_a_column_is_a_row_of_the_page():
    columns = {
        "a": Column(pl.String, "First."),
        "b": Column(pl.List(pl.Struct({"x": pl.Int64})), "Second.", "pixels"),
    }
    assert markdown_table(columns).splitlines()[2:] == [
        "| `a` | text |  | First. |",
        "| `b` | list of {x: int64} | pixels | Second. |",
    ]
    assert schema(columns) == {"a": pl.String, "b": pl.List(pl.Struct({"x": pl.Int64}))}


def test_columns_are_read_from_the_file_of_their_stage(monkeypatch, tmp_path):
    (tmp_path / "columns").mkdir()
    rows = 'a = ["text", "First."]\nb = [[{x = "int64", y = ["text"]}], "Second.", "pixels"]\n'
    (tmp_path / "columns/stage.toml").write_text(f"[table]\n{rows}")
    monkeypatch.setattr(declarations, "RESOURCES", tmp_path)
    pair = pl.Struct({"x": pl.Int64, "y": pl.List(pl.String)})
    wanted = {"a": Column(pl.String, "First."), "b": Column(pl.List(pair), "Second.", "pixels")}
    assert read_columns("stage", "table") == wanted


def test_the_command_prints_the_columns_of_a_file(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["table_columns.py", "results/masks/half/excluded.parquet"])
    assert main() == 0
    assert markdown_table(TABLES["results/<stage>/excluded.parquet"]) in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["table_columns.py"])
    assert main() == 0
    assert capsys.readouterr().out.split() == sorted(TABLES)
    monkeypatch.setattr("sys.argv", ["table_columns.py", "results/masks/half/nothing.tsv"])
    assert main() == 1
    assert "results/masks/half/nothing.tsv is not a table of a stage" in capsys.readouterr().err


def test_a_table_with_other_columns_than_declared_is_not_written(tmp_path):
    columns = {"a": Column(pl.Int64, "First."), "b": Column(pl.String, "Second.")}
    path = tmp_path / "table.tsv"
    write_table(path, pl.DataFrame({"a": [1], "b": ["x"]}), columns)
    assert read_table(path).rows() == [(1, "x")]
    for wrong in ({"a": [1]}, {"b": ["x"], "a": [1]}, {"a": [1.0], "b": ["x"]}, {"a": [1], "b": ["x"], "c": [2]}):
        with pytest.raises(ValueError, match=r"table\.tsv has the columns"):
            write_table(path, pl.DataFrame(wrong), columns)
    assert read_table(path).rows() == [(1, "x")]


def outputs() -> set[str]:
    """Paths of every table that a rule writes, as TABLES and SAME_COLUMNS spell them."""
    files = {re.sub(r"{(\w+),.*?}(?=[/.])", r"{\1}", path) for rule in parsed.rules().values() for path in rule.output}
    files = {re.sub(r"(?<=semisyn/editing/)\w+(?=/)", "{engine}", path) for path in files}  # a rule for each engine
    stages = rf"results/(?:{'|'.join(STAGES)}|semisyn/\w+|{{stage}})/(?=(?:{{\w+}}/)?(?:{{shard}}\.)?excluded\.parquet)"
    named = {re.sub(stages, "results/<stage>/", re.sub(r"(?<=/)\d+(?=\.)", "{shard}", path)) for path in files}
    return {path for path in named if path.endswith(ENDINGS)}


def test_every_table_that_a_rule_writes_is_declared_and_no_other():
    packaged = {path for path in TABLES if path.startswith("results/release/")}  # within a folder
    assert outputs() == TABLES.keys() - packaged | SAME_COLUMNS.keys()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.stem)
def test_a_table_that_the_docs_name_is_declared(page):
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"results/[\w{}<>*/.-]+(?:\.tsv|\.parquet|\.csv)\b", text))
    spelt = {name.replace("<stage>", "masks").replace("{shard}", "00") for name in named}
    assert not {name for name in spelt if not path_of(name)}


def calls(module: ast.Module, name: str) -> list[ast.Call]:
    return [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name
    ]


def test_no_table_is_written_without_its_columns():
    modules = {path.relative_to(SCRIPTS).as_posix(): ast.parse(path.read_text()) for path in SCRIPTS.rglob("*.py")}
    written = {name: calls(module, "write_table") for name, module in modules.items()}
    assert sum(map(len, written.values())) > 40
    assert not {name for name, found in written.items() if any(len(call.args) < 3 for call in found)}
    polars = ("write_parquet", "write_csv", "sink_parquet", "sink_csv")
    assert {name for name, module in modules.items() if any(calls(module, one) for one in polars)} == PLAIN


def test_the_tables_of_a_finished_run_have_their_declared_columns(workflow_run):
    found = tables_of(workflow_run)
    assert not list(filter(None, found.values()))
    assert found.keys() == {path for path in TABLES if path.split("/")[1] not in ASKED} - NOT_BARE
