"""Whether a file is what it should be: each fault is one sentence that names the file and the remedy."""

import hashlib
import json
import math
from pathlib import Path

from safetensors import SafetensorError, safe_open

from cxr.base.errors import UserError

DOCUMENTS = {b"<!doctype": "a web page", b"<html": "a web page", b"version https://git-lfs": "a Git LFS pointer"}
"""What a failed download often leaves instead: Google Drive's notice of a quota, for one."""


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def published_file(path: Path, pin: str, sha256: str | None, remedy: str) -> None:
    """Check a file as it was published. ``pin``: its name in ``weights.sha256``; ``remedy``: how to get it again.

    Raises UserError if it is missing, empty, no checkpoint at all, or not of the sha256 that is known.
    """
    if not path.is_file() or not path.stat().st_size:
        raise UserError(f"{path} is {'empty' if path.is_file() else 'missing'}: {remedy}")
    with open(path, "rb") as file:
        head = file.read(512).lstrip().lower()
    for mark, kind in DOCUMENTS.items():
        if head.startswith(mark):
            raise UserError(f"{path} is {kind} and not the file itself: {remedy}")
    if sha256 and (found := sha256_of(path)) != sha256:
        raise UserError(
            f"{path} has sha256 {found} and not {sha256}: {remedy}, or, if you mean this file, set "
            f"weights.sha256: {{{pin}: '{found}'}}"
        )


def json_file(path: Path, named: Path, remedy: str) -> None:
    """Check that a file is JSON. Raises UserError, which speaks of ``named``, the file as it was published."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{named} is no JSON file: {remedy}") from None


def safetensors_file(
    path: Path, named: Path, remedy: str, tensors: int | None = None, values: int | None = None
) -> None:
    """Check that a safetensors file is whole, and how many tensors and values it holds where that is known.

    Raises UserError, which speaks of ``named``, the file as it was published.
    """
    try:
        with safe_open(path, "numpy") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 (no mapping)
    except (SafetensorError, OSError):
        raise UserError(f"{named} is damaged or no safetensors file: {remedy}") from None
    found = len(shapes), sum(math.prod(shape) for shape in shapes)
    wanted = found[0] if tensors is None else tensors, found[1] if values is None else values
    if found != wanted:
        raise UserError(
            f"{named} holds {found[0]} tensors of {found[1]} values and not {wanted[0]} of {wanted[1]}, so it is "
            f"another net: {remedy}"
        )
