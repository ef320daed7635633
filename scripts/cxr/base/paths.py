"""Paths of the repository's own files."""

from collections.abc import Iterable
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2]
RESOURCES = SCRIPTS.parent / "resources"


def group_by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """Group paths by the name of their folder, {folder name: paths in the given order}."""
    paths_by_folder: dict[str, list[str]] = {}
    for path in paths:
        paths_by_folder.setdefault(Path(path).parent.name, []).append(path)
    return paths_by_folder
