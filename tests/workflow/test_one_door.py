"""Every table that a user hands in goes through one reader, so that all have the same tolerance and the same errors."""

import ast

from conftest import ROOT

READERS = {"DictReader", "read_csv", "scan_csv", "read_csv_batched", "read_excel", "loadtxt", "genfromtxt"}
OWN = {
    "base/user_tables.py": "the one reader",
    "annotations/chexmask.py": "CheXmask's published tables, gigabytes in blocks",
    "base/tables.py": "tables that this program wrote",
    "language/reports/outcome_summary.py": "reading.tsv, which the driver prints without polars",
    "semisyn/shared.py": "conservation.tsv, which the driver prints without polars",
    "reporting/page/costs.py": "benchmark files, which Snakemake writes",
}
"""Modules that may call a reader of CSV, and whose files they read."""


def readers_called(source: str) -> set[str]:
    """Return the readers of CSV that a module calls."""
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute):
            names.add("csv.reader" if ast.unparse(node) == "csv.reader" else node.attr)
        elif isinstance(node, ast.ImportFrom):
            names |= {
                "csv.reader" if node.module == "csv" and name.name == "reader" else name.name for name in node.names
            }
    return names & (READERS | {"csv.reader"})


def test_no_other_module_reads_a_users_table():
    package = ROOT / "scripts/cxr"
    calling = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if readers_called(path.read_text(encoding="utf-8"))
    }
    assert calling == OWN.keys()


def test_a_reader_is_seen_however_it_is_imported():
    assert readers_called("import csv\ncsv.reader(file)") == {"csv.reader"}
    assert readers_called("from csv import reader as read") == {"csv.reader"}
    assert readers_called("from csv import DictReader\nrows = list(DictReader(file))") == {"DictReader"}
    assert readers_called("import polars as pl\npl.read_csv(path)") == {"read_csv"}
    assert readers_called("read_sheet(path, key, names)") == set()
