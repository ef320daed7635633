"""Finding files by the paths in users' tables, which may come from another system or program.

The module uses the standard library only, because Snakemake's main process imports it.
"""

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from cxr.base.errors import MACHINE_ERRORS
from cxr.base.ids import clean_id

_WINDOWS_ROOT = re.compile(r"[A-Za-z]:\\|\\\\")


@dataclass(frozen=True)
class UserPath:
    """Result of the search for a file that a table's cell names."""

    path: str  # path of the file, or the path as the table writes it if no file fits
    differences: tuple[str, ...] = ()  # how the path differs from the cell, such as "case"
    problem: str = ""  # why no file fits


class PathFinder:
    """Search for the files that a table names, by paths relative to ``folder`` or absolute. Folders are read once."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = os.fspath(folder)
        self._names: dict[str, dict[str, list[str]]] = {}

    def find_all(self, texts: Iterable[str], apply: Callable = map) -> dict[str, UserPath]:
        """Return {text: result of :meth:`find`} for all cells of a column.

        If several cells match the same file except for case, only a cell with the exact path gets the file. ``apply``
        is ``map``, or the ``map`` of a thread pool.
        """
        cells = list(dict.fromkeys(texts))
        files = dict(zip(cells, apply(self.find, cells), strict=True))
        spellings: dict[str, set[str]] = {}
        for text, file in files.items():
            spellings.setdefault(file.path, set()).add(_folded_but("case", _plain(text)))
        problem = "a file exists whose path differs only in case, but another row of the table names that file"
        shared = [text for text, file in files.items() if "case" in file.differences and len(spellings[file.path]) > 1]
        return files | {text: UserPath(self._below(text), problem=problem) for text in shared}

    def find(self, text: str) -> UserPath:
        """Return the file that a table's cell names.

        If no file has the exact path, differences in separators, case, Unicode form, percent-encoding, invisible
        characters and a leading ``file://`` are ignored, provided that exactly one file matches. Several threads may
        call this method. Raises OSError if a disk or the network fails.
        """
        written = self._below(text)
        if not text or os.path.exists(written):
            return UserPath(written)
        plain, differences = _without_scheme(text)
        if "\\" in plain:
            if _WINDOWS_ROOT.match(plain):
                problem = "a path of another computer's drive or share: write it relative to the table's folder"
                return UserPath(written, problem=problem)
            plain, differences = plain.replace("\\", "/"), [*differences, "separator"]
        paths = self._fitting(self._below(plain))
        if len(paths) == 1:
            differences += _differences(self._below(plain), paths[0])
            return UserPath(paths[0], tuple(dict.fromkeys(differences)))
        if paths:
            names = sorted({name for path in paths for name in _differences(self._below(plain), path)})
            return UserPath(written, problem=f"{len(paths)} files exist that differ only in {', '.join(names)}")
        has_folder = os.path.isdir(os.path.dirname(self._below(plain)) or ".")
        return UserPath(written, problem="" if has_folder else "its folder does not exist")

    def _below(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.folder, path)) if path else ""

    def _fitting(self, path: str) -> list[str]:
        """Return the existing paths that match ``path``. A part without an exact match may differ as in ``_FOLDS``."""
        if os.path.lexists(path):
            return [path]
        paths = [os.sep if path.startswith(os.sep) else ""]
        for part in filter(None, path.split(os.sep)):
            folders, paths = paths, []
            for folder in folders:
                exact = os.path.join(folder, part)
                paths += [exact] if os.path.lexists(exact) else self._alike(folder, part)
        return paths

    def _alike(self, folder: str, name: str) -> list[str]:
        if folder not in self._names:
            names: dict[str, list[str]] = {}
            try:
                for entry in sorted(os.listdir(folder or ".")):
                    names.setdefault(_folded(entry), []).append(entry)
            except OSError as error:
                if error.errno in MACHINE_ERRORS:
                    raise
            except ValueError:  # a name that no folder can have
                pass
            self._names[folder] = names
        return [os.path.join(folder, entry) for entry in self._names[folder].get(_folded(name), [])]


def _folded(name: str) -> str:
    return clean_id(unquote(name)).casefold()


def _plain(text: str) -> str:
    """Return a path with this system's separators, without ``file://`` and parts like ``./``."""
    return os.path.normpath(_without_scheme(text)[0].replace("\\", "/"))


def _without_scheme(text: str) -> tuple[str, list[str]]:
    if not text.lower().startswith("file:"):
        return text, []
    try:
        return unquote(urlsplit(text).path), ["file://"]
    except ValueError:
        return text, []


_FOLDS: dict[str, Callable[[str], str]] = {
    "percent-encoding": unquote,
    "Unicode form or invisible signs": lambda path: "/".join(map(clean_id, path.split("/"))),
    "case": str.casefold,
}
"""{kind of difference between two paths: function that removes it}."""


def _differences(written: str, path: str) -> list[str]:
    return [fold_name for fold_name in _FOLDS if _folded_but(fold_name, written) != _folded_but(fold_name, path)]


def _folded_but(ignored_fold: str, path: str) -> str:
    for fold_name, fold in _FOLDS.items():
        path = path if fold_name == ignored_fold else fold(path)
    return path
