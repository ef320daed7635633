"""Checking weights files, and noting the source, size and digest of each in the manifest of its artefact."""

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError, safe_open

from cxr.base.atomic import atomic_file
from cxr.base.errors import UserError, refuse_machine_fault

ARTEFACT = ("artefact", "used_by", "licence", "source", "revision")  # what a manifest tells of the whole artefact
DOCUMENTS = {b"<!doctype": "a web page", b"<html": "a web page", b"version https://git-lfs": "a Git LFS pointer"}
"""First bytes of what a failed download often leaves, such as Google Drive's quota page."""


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_published_file(path: Path, pin: str, sha256: str | None, remedy: str) -> None:
    """Check a published file. ``pin``: its name in ``weights.sha256``; ``remedy``: how to get it again.

    Raises UserError if it is missing, empty, not a checkpoint, or differs from the known sha256.
    """
    if not path.is_file() or not path.stat().st_size:
        raise UserError(f"{path} is {'empty' if path.is_file() else 'missing'}: {remedy}")
    with open(path, "rb") as file:
        head = file.read(512).lstrip().lower()
    if kind := next((kind for mark, kind in DOCUMENTS.items() if head.startswith(mark)), ""):
        raise UserError(f"{path} is {kind} and not the file itself: {remedy}")
    if sha256 and (actual_sha256 := sha256_of(path)) != sha256:
        raise UserError(
            f"{path} has sha256 {actual_sha256} and not {sha256}: {remedy}, or, if you mean this file, set "
            f"weights.sha256: {{{pin}: '{actual_sha256}'}}"
        )


def check_safetensors_file(
    path: Path, published_path: Path, remedy: str, tensors: int | None = None, values: int | None = None
) -> None:
    """Check that a safetensors file is complete, and its numbers of tensors and values if they are known.

    Raises UserError, which names the published file ``published_path``.
    """
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


def install_file(
    source: Path, target: Path, convert: Callable, options: "WeightsOptions", pin: tuple[str, str | None], remedy: str
) -> dict:
    """Check a published file, make ``target`` with ``convert(source, path)``, check it, and return its facts.

    ``pin``: its name in ``weights.sha256``, and its digest if known. Raises UserError, which names the published file.
    """
    check_published_file(source, *pin, remedy)
    with atomic_file(target) as temporary:
        facts = convert(source, temporary)
        if target.suffix == ".safetensors":
            check_safetensors_file(temporary, source, remedy, options.tensors, options.values)
        elif target.suffix == ".json":
            try:
                json.loads(temporary.read_text(encoding="utf-8"))
            except ValueError:
                raise UserError(f"{source} is no JSON file: {remedy}") from None
    return facts if isinstance(facts, dict) else {}


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
    lines = {name: getattr(options, name) for name in ARTEFACT} | {"code_digest": attrs["code_digest"]}
    lines |= {"published": published, "used": used, "facts": facts or {}}
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(lines, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
