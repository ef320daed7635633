"""The weights stage: writes one table of the chosen engines' weights, with licences and digests."""

import json
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.tables import write_table

ARTEFACT = {
    "artefact": Column(pl.String, "Name of the weights."),
    "used_by": Column(pl.String, "Engine that reads them, or setting that names them."),
    "licence": Column(pl.String, "Their licence."),
    "source": Column(pl.String, "Where they were published."),
    "revision": Column(pl.String, "Revision there; null where there is none."),
}
COLUMNS = ARTEFACT | {
    "file": Column(pl.String, "File as it was published."),
    "bytes": Column(pl.Int64, "Its size.", "bytes"),
    "sha256": Column(pl.String, "Its SHA-256."),
}


def run(*, manifests: list[str], table: str) -> None:
    """Write a row for each published file in ``manifests`` (JSON, see :mod:`cxr.imaging.weights.manifest`)."""
    rows = []
    for path in manifests:
        manifest = json.loads(Path(path).read_text(encoding="utf-8"))
        shared = {name: manifest[name] for name in ARTEFACT}
        rows += [shared | file for file in manifest["published"]]
    write_table(table, pl.DataFrame(rows, schema=schema(COLUMNS)), COLUMNS)
