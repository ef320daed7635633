"""Check before any job that a run may write its folders, instead of Snakemake's traceback."""

import os
from pathlib import Path

from cxr.base.errors import UserError

RUN_FOLDERS = (".snakemake", "results", "logs")


def refuse_unwritable(directory: Path, names: tuple[str, ...] = RUN_FOLDERS) -> None:
    """Raise UserError if one of the folders ``names`` of a working directory cannot be written or made.

    A read-only file system refuses everyone, even root; permissions do not refuse root.
    """
    for name in names:
        place = directory / name
        if not os.path.lexists(place):
            place = directory
        if place.exists() and not place.is_dir():
            raise UserError(f"{place} is a file, but a run needs a folder of that name: rename it")
        if not os.access(place, os.W_OK | os.X_OK):
            raise UserError(
                f"{place} may not be written by this user, or its file system is mounted read-only: run in "
                "another folder (--directory), or have its permissions changed"
            )
