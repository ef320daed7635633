"""Noting models that a setting names, and the table of where all published files come from."""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.tables import write_table
from cxr.imaging.weights.manifest import ARTEFACT, WeightsOptions, check_published_file, file_facts, write_manifest
from cxr.nets.hub import find_downloaded_model

COLUMNS = {
    "artefact": Column(pl.String, "Name of the weights."),
    "used_by": Column(pl.String, "Engine that reads them, or setting that names them."),
    "licence": Column(pl.String, "Their licence."),
    "source": Column(pl.String, "Where they were published."),
    "revision": Column(pl.String, "Revision there; null where there is none."),
    "file": Column(pl.String, "File as it was published."),
    "bytes": Column(pl.Int64, "Its size.", "bytes"),
    "sha256": Column(pl.String, "Its SHA-256."),
}
REMEDY = "download it again (docs/how-to/models.md)"


def note_model(*, sources: list[str], manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Write the manifest of a model. ``sources``: its files in a folder; empty for one of the hub, in its cache.

    Raises UserError if it is not on this machine, or if a file is missing or differs from a known digest.
    """
    paths, commit = [Path(path) for path in sources], None
    if options.repository:
        key, _, setting = options.used_by.rpartition(".")
        folder = Path(find_downloaded_model(key, options.repository, options.revision or "", setting))
        # the cache has a folder for each commit
        paths, commit = [folder / name for name in options.files], folder.name
    for (name, sha256), path in zip(options.files.items(), paths, strict=True):
        check_published_file(path, f"{options.artefact}/{name}", sha256, REMEDY)
    facts = [file_facts(name, path) for name, path in zip(options.files, paths, strict=True)]
    write_manifest(manifest, replace(options, revision=commit), attrs, facts, facts)


def list_sources(*, manifests: list[str], table: str) -> None:
    """Write a row for each published file in ``manifests`` (JSON, see :mod:`cxr.imaging.weights.manifest`)."""
    contents = [json.loads(Path(path).read_text(encoding="utf-8")) for path in manifests]
    rows = [{name: content[name] for name in ARTEFACT} | file for content in contents for file in content["published"]]
    write_table(table, pl.DataFrame(rows, schema=schema(COLUMNS)), COLUMNS)
