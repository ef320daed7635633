"""Read an engine's declarations, which the workflow needs before any job.

Its module declares them in literals, which are read without importing it (only the job's environment may have its
libraries):

INPUTS: {name: path} of files that it reads besides its stage's inputs; other rules make them.
INSTEAD: the name of one of its own settings: a folder that replaces all ``INPUTS`` if it is given.
FILES: names of its own settings that are a user's files, where they are given; they become inputs.
SOURCES: the same for files that only the engine's own rules read.
GPU: whether it needs a GPU.

Only rule files use this module, and no stage: an edit here re-runs nothing by itself.
"""

import ast
import importlib
from functools import cache
from pathlib import Path

from cxr.base.errors import existing_file, existing_folder
from cxr.base.literals import assigned
from cxr.base.paths import SCRIPTS


@cache
def package_of(stage: str) -> str:
    """Return the package of a stage, ``"cxr.imaging.organs"``; a stage's name is a folder's name in one wing."""
    (folder,) = (SCRIPTS / "cxr").glob(f"*/{stage}/__init__.py")
    return ".".join(folder.parent.relative_to(SCRIPTS).parts)


def declared(package: str, name: str, constant: str, default: object) -> object:
    """Return a literal that an engine's module declares, without importing the module."""
    node = _assigned(package, name).get(constant)
    return default if node is None else ast.literal_eval(node)


@cache
def _assigned(package: str, name: str) -> dict[str, ast.expr]:
    folder = Path(importlib.import_module(package).__path__[0])
    return assigned(next(path for path in (folder / f"{name}.py", folder / name / "__init__.py") if path.is_file()))


def engine_inputs(stage: str, name: str, engine_settings: dict | None = None) -> dict[str, str]:
    """Return {name: path} of the files that an engine reads besides its stage's inputs.

    Raises UserError for a user's file that is missing.
    """
    package = package_of(stage)
    folder = (engine_settings or {}).get(declared(package, name, "INSTEAD", None))
    if folder:
        return {"folder": str(existing_folder(f"{stage}.{name}", folder))}
    return declared(package, name, "INPUTS", {}) | _users_files(stage, name, engine_settings, "FILES")


def engine_sources(stage: str, name: str, engine_settings: dict | None = None) -> dict[str, str]:
    """Return {name: path} of a user's files that the engine's own rules read.

    Raises UserError for a missing file.
    """
    return _users_files(stage, name, engine_settings, "SOURCES")


def _users_files(stage: str, name: str, engine_settings: dict | None, constant: str) -> dict[str, str]:
    files = (
        {key: engine_settings[key] for key in declared(package_of(stage), name, constant, ()) if engine_settings[key]}
        if engine_settings
        else {}
    )
    for key, value in files.items():
        existing_file(f"{stage}.{name}.{key}", value)
    return files
