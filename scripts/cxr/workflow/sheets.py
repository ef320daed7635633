"""The experts' filled sheets that a setting names."""

from collections.abc import Sequence
from pathlib import Path

from cxr.base.errors import UserError, existing_file


def sheet_files(key: str, names: Sequence[str]) -> list[str]:
    """Return the files, and the CSV files of the folders, that a setting names. Raises UserError for missing ones."""
    sheet_paths = []
    for name in names:
        path = Path(name)
        files = sorted(path.glob("*.csv")) if path.is_dir() else [path]
        if not files:
            raise UserError(f"{key}: the folder {name!r} holds no .csv file: correct the path")
        sheet_paths += [str(existing_file(key, str(file))) for file in files]
    return sheet_paths
