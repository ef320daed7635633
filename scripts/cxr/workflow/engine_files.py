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
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cxr.base.engines import read_assignments
from cxr.base.errors import existing_file, existing_folder
from cxr.base.paths import SCRIPTS
from cxr.workflow.settings import Settings


@cache
def find_package(stage: str) -> str:
    """Return the package of a stage, ``"cxr.imaging.organs"``; a stage's name is a folder's name in one wing."""
    (folder,) = (SCRIPTS / "cxr").glob(f"*/{stage}/__init__.py")
    return ".".join(folder.parent.relative_to(SCRIPTS).parts)


def read_declaration(package: str, name: str, constant: str, default: object) -> object:
    """Return a literal that an engine's module declares, without importing the module."""
    node = _assigned(package, name).get(constant)
    return default if node is None else ast.literal_eval(node)


@cache
def _assigned(package: str, name: str) -> dict[str, ast.expr]:
    folder = Path(importlib.import_module(package).__path__[0])
    return read_assignments(
        next(path for path in (folder / f"{name}.py", folder / name / "__init__.py") if path.is_file())
    )


def num_gpus(package: str, engine: str, settings: Settings) -> int:
    """Return 1 if the engine's net needs a GPU and GPUs are available, else 0; only a training can use several."""
    return min(1, settings.compute.gpus) if read_declaration(package, engine, "GPU", False) else 0


def engine_folder_or_inputs(package: str, engine: str, section: Mapping, key: str) -> dict[str, str]:
    """Return {name: path} of an engine's input files: its folder if it declares ``INSTEAD``, else its ``INPUTS``.

    ``section``: the engine's settings; ``key``: their key. Raises UserError for a missing folder.
    """
    if name := read_declaration(package, engine, "INSTEAD", None):
        return {"folder": str(existing_folder(f"{key}.{name}", section[name]))}
    return read_declaration(package, engine, "INPUTS", {})


def users_files(package: str, engine: str, section: Mapping, key: str, constant: str = "FILES") -> dict[str, str]:
    """Return {setting: path} of the user's files of an engine that are given; ``constant``: FILES or SOURCES.

    ``section``, ``key``: as of :func:`engine_folder_or_inputs`. Raises UserError for a missing file.
    """
    names = [name for name in read_declaration(package, engine, constant, ()) if section.get(name)]
    return {name: str(existing_file(f"{key}.{name}", section[name])) for name in names}


def engine_inputs(stage: str, engine: str, section: Mapping) -> dict[str, str]:
    """Return {name: path} of the files that a stage's engine reads besides the stage's inputs.

    ``section``: the engine's settings, {} without. Raises UserError for a user's file that is missing.
    """
    package = find_package(stage)
    if section.get(read_declaration(package, engine, "INSTEAD", None)):
        return engine_folder_or_inputs(package, engine, section, f"{stage}.{engine}")
    return read_declaration(package, engine, "INPUTS", {}) | users_files(package, engine, section, f"{stage}.{engine}")
