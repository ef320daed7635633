"""Checking weights files, and recording their source, size and digest in JSON files (manifests) and in a table."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
from safetensors import SafetensorError, safe_open

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.tables import write_table
from cxr.nets.hub import find_downloaded_model

ARTEFACT = ("artefact", "used_by", "licence", "source", "revision")  # fields of a manifest that describe the artefact
DOCUMENTS = {b"<!doctype": "a web page", b"<html": "a web page", b"version https://git-lfs": "a Git LFS pointer"}
"""{first bytes of a file that a failed download leaves, such as Google Drive's page about its quota: description}."""

COLUMNS = {
    "artefact": Column(pl.String, "Name of the weights."),
    "used_by": Column(pl.String, "Engine that reads the weights, or setting that names them."),
    "licence": Column(pl.String, "Licence of the weights."),
    "source": Column(pl.String, "Address at which the weights were published."),
    "revision": Column(pl.String, "Revision at this address; null if it has none."),
    "file": Column(pl.String, "Name of the published file."),
    "bytes": Column(pl.Int64, "Size of the file.", "bytes"),
    "sha256": Column(pl.String, "SHA-256 of the file."),
}


def file_facts(name: str, path: Path) -> dict:
    """Return a file's name, size in bytes and SHA-256."""
    with open(path, "rb") as file:
        return {"file": name, "bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def check_published_file(path: Path, name: str, pin: str, sha256: str | None, remedy: str) -> dict:
    """Check a published file and return its :func:`file_facts`, with ``name`` as the file's name.

    ``pin``: the file's key in ``weights.sha256``; ``remedy``: how to get the file again. Raises UserError if the file
    is missing, empty or not a checkpoint, or if its digest differs from ``sha256`` (None: not checked).
    """
    if not path.is_file() or not path.stat().st_size:
        raise UserError(f"{path} is {'empty' if path.is_file() else 'missing'}: {remedy}")
    with open(path, "rb") as file:
        head = file.read(512).lstrip().lower()
    if kind := next((kind for mark, kind in DOCUMENTS.items() if head.startswith(mark)), ""):
        raise UserError(f"{path} is {kind} instead of the weights: {remedy}")
    facts = file_facts(name, path)
    if sha256 and facts["sha256"] != sha256:
        raise UserError(
            f"{path} has sha256 {facts['sha256']} and not {sha256}: {remedy}, or, if you mean this file, set "
            f"weights.sha256: {{{pin}: '{facts['sha256']}'}}"
        )
    return facts


def check_safetensors_file(
    path: Path, published_path: Path, remedy: str, tensors: int | None = None, values: int | None = None
) -> None:
    """Raise UserError unless a safetensors file is complete and has as many tensors and values as given (None: any)."""
    try:
        with safe_open(path, "numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError) as error:
        refuse_machine_fault(path, error)
        raise UserError(f"{published_path} is damaged or no safetensors file: {remedy}") from None
    num_tensors, num_values = len(shapes), sum(math.prod(shape) for shape in shapes)
    expected = num_tensors if tensors is None else tensors, num_values if values is None else values
    if (num_tensors, num_values) != expected:
        raise UserError(
            f"{published_path} holds {num_tensors} tensors of {num_values} values and not "
            f"{expected[0]} of {expected[1]}, so it is another net: {remedy}"
        )


def install_file(source: Path, target: Path, convert: Callable, options: "WeightsOptions", remedy: str) -> dict:
    """Make ``target`` by ``convert(source, path)`` and check it; return the facts that ``convert`` returns, {} if none.
    Raises UserError for an invalid result. ``remedy``: how to get ``source`` again."""
    with atomic_file(target) as temporary:
        facts = convert(source, temporary)
        if target.suffix == ".safetensors":
            check_safetensors_file(temporary, source, remedy, options.tensors, options.values)
        elif target.suffix == ".json":
            try:
                json.loads(temporary.read_text(encoding="utf-8"))
            except ValueError:
                raise UserError(f"{source} is not a JSON file: {remedy}") from None
    return facts if isinstance(facts, dict) else {}


@dataclass(frozen=True)
class WeightsOptions:
    """An artefact of ``resources/weights.yaml``, which is a set of weights files.

    files: {name: sha256 or None}, in a folder, or in ``repository`` at ``revision``. tensors, values: numbers of
    tensors and values that the converted file must have, None if unknown. parts, dropped, float32: arguments of
    :func:`cxr.imaging.weights.state_dict.convert_state_dict`.
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


def write_manifest(
    path: str, options: WeightsOptions, attrs: dict, published: list[dict], used: list[dict], facts: dict | None = None
) -> None:
    """Write the manifest of an artefact, without time and machine name, so that the same files give the same bytes.

    ``published``, ``used``: :func:`file_facts` of published and converted files; ``facts``: facts from the converter.
    """
    lines = {name: getattr(options, name) for name in ARTEFACT} | {"code_digest": attrs["code_digest"]}
    lines |= {"published": published, "used": used, "facts": facts or {}}
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(lines, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")


def note_model(*, sources: list[str], manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Write the manifest of a model. ``sources``: its files, if it is in a folder; empty if it is in the hub's cache.

    Raises UserError if the model is not on this machine, a file is missing, or its digest differs from ``options``.
    """
    paths, commit = [Path(path) for path in sources], None
    if options.repository:
        key, _, setting = options.used_by.rpartition(".")
        folder = Path(find_downloaded_model(key, options.repository, options.revision or "", setting))
        # the cache has a folder for each commit
        paths, commit = [folder / name for name in options.files], folder.name
    remedy = "download it again (docs/how-to/models.md)"
    facts = [
        check_published_file(path, name, f"{options.artefact}/{name}", sha256, remedy)
        for (name, sha256), path in zip(options.files.items(), paths, strict=True)
    ]
    write_manifest(manifest, replace(options, revision=commit), attrs, facts, facts)


def list_sources(*, manifests: list[str], table: str) -> None:
    """Write a table with a row for each published file in ``manifests``, which :func:`write_manifest` wrote."""
    contents = [json.loads(Path(path).read_text(encoding="utf-8")) for path in manifests]
    rows = [{name: content[name] for name in ARTEFACT} | file for content in contents for file in content["published"]]
    write_table(table, pl.DataFrame(rows, schema=schema(COLUMNS)), COLUMNS)
