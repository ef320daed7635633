"""The weights stage: one table of the weights that the chosen engines read, with licences and digests."""

import json
from pathlib import Path

import polars as pl

from cxr.base.tables import write_table

COLUMNS = ("artefact", "used_by", "licence", "source", "revision", "file", "bytes", "sha256")


def run(*, manifests: list[str], table: str) -> None:
    """Write a row for each published file that ``manifests`` (JSON, see :mod:`cxr.imaging.weights.manifest`) name."""
    rows = []
    for path in manifests:
        made = json.loads(Path(path).read_text(encoding="utf-8"))
        shared = {name: made[name] for name in COLUMNS[:5]}
        rows += [shared | file for file in made["published"]]
    schema = dict.fromkeys(COLUMNS, pl.String) | {"bytes": pl.Int64}
    write_table(table, pl.DataFrame(rows, schema=schema))
