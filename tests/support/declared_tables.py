"""The tables of a finished run beside the columns that are declared for them."""

import csv
import re
from pathlib import Path

import polars as pl

from cxr.base.columns import Columns, schema
from table_columns import TABLES, path_of

ENDINGS = (".tsv", ".parquet", ".csv")
NOT_OURS = re.compile(r"results/(benchmarks|release/[.]|.*/tensorboard)/?")
"""Snakemake's own tables, and parts that are linked from elsewhere."""
WITHHELD = {"section_content", "quote", "image"}


def differing(file: Path, path: str) -> str:
    """Return how a file's columns differ from those that TABLES declares for a path; "" if they do not."""
    declared = TABLES[path]
    if file.suffix == ".parquet":
        found, wanted = dict(pl.read_parquet_schema(file)), schema(declared)
    else:
        with open(file, newline="", encoding="utf-8") as opened:
            found = dict.fromkeys(next(csv.reader(opened, delimiter="\t" if file.suffix == ".tsv" else ",")))
        wanted = dict.fromkeys(declared)
    more, fewer = _may_have(path, found, declared), _may_lack(path)
    wanted = {name: kind for name, kind in wanted.items() if name in found or name not in fewer}
    kept = {name: kind for name, kind in found.items() if name not in more}
    return "" if list(kept.items()) == list(wanted.items()) else f"{file}: {kept}, declared are {wanted}"


def _may_have(path: str, found: dict, declared: Columns) -> set[str]:
    """Return names beside the declared ones: the manifest's own, the threshold sets."""
    if path == "results/cohort/images.parquet":
        return found.keys() - declared.keys()
    if path == "results/tables/counts.tsv":
        return set(list(found)[1:-2])
    return {"thresholds"} if path == "results/<stage>/excluded.parquet" else set()


def _may_lack(path: str) -> set[str]:
    return WITHHELD if path.startswith("results/release/") else {"{thresholds}"} & TABLES[path].keys()


def tables_of(directory: Path) -> dict[str, str]:
    """Return {path of TABLES: how a file of the run differs}, of every table below ``results``; "" key: undeclared."""
    found: dict[str, str] = {}
    for file in sorted((directory / "results").rglob("*")):
        name = file.relative_to(directory).as_posix()
        if file.suffix in ENDINGS and not NOT_OURS.match(name) and file.is_file():
            path = path_of(name)
            found[path] = found.get(path) or (differing(file, path) if path else name)
    return found
