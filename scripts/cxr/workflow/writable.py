"""Whether a run may write where it must: asked before any job, in place of Snakemake's traceback."""

import os
from pathlib import Path

from cxr.base.errors import UserError

HELD = (".snakemake", "results", "logs")


def refuse_unwritable(directory: Path, names: tuple[str, ...] = HELD) -> None:
    """Raise UserError if one of the folders ``names`` of a working directory cannot be written, or not be made there.

    Root is refused by a file system that is mounted for reading only; anyone by permissions as well.
    """
    for name in names:
        place = directory / name
        if not os.path.lexists(place):
            place = directory
        if place.exists() and not place.is_dir():
            raise UserError(f"{place} is a file where a run keeps a folder: rename it")
        if not os.access(place, os.W_OK | os.X_OK):
            raise UserError(
                f"{place} may not be written by this user, or its file system is mounted for reading only: run in "
                "another folder (--directory), or have its permissions changed"
            )
