"""Writing the manifest beside each artefact: the source, size and digest of every file."""

import json
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.tables import write_table
from cxr.imaging.weights.verify import sha256_of


@dataclass(frozen=True)
class WeightsOptions:
    """One artefact of ``resources/weights.yaml``.

    files: {name: sha256 or None}, in a folder or in ``repository`` at ``revision``.
    tensors, values: required numbers in the converted file, None if unknown. parts, dropped, float32: how a state dict
    is converted (:func:`cxr.imaging.weights.state_dict.convert_state_dict`).
    """

    artefact: str
    source: str
    repository: str | None
    revision: str | None
    files: dict[str, str | None]
    tensors: int | None
    values: int | None
    licence: str
    used_by: str
    parts: list[str] | None = None
    dropped: str | None = None
    float32: bool | None = None


def file_facts(name: str, path: Path) -> dict:
    """Return a file's name, size and sha256."""
    return {"file": name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def write_manifest(
    path: str, options: WeightsOptions, attrs: dict, published: list[dict], used: list[dict], facts: dict | None = None
) -> None:
    """Write the manifest of an artefact, without time or machine, so that the same files give the same bytes.

    ``published`` and ``used``: :func:`file_facts` of the published and of the converted files; ``facts``: the
    converter's result.
    """
    lines = {
        "artefact": options.artefact,
        "used_by": options.used_by,
        "licence": options.licence,
        "source": options.source,
        "revision": options.revision,
        "code_digest": attrs["code_digest"],
        "published": published,
        "used": used,
        "facts": facts or {},
    }
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(lines, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


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


def list_sources(*, manifests: list[str], table: str) -> None:
    """Write a row for each published file in ``manifests`` (JSON, see :mod:`cxr.imaging.weights.manifest`)."""
    rows = []
    for path in manifests:
        manifest = json.loads(Path(path).read_text(encoding="utf-8"))
        shared = {name: manifest[name] for name in ARTEFACT}
        rows += [shared | file for file in manifest["published"]]
    write_table(table, pl.DataFrame(rows, schema=schema(COLUMNS)), COLUMNS)
