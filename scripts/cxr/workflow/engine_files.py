"""What the workflow must know of an engine before any job.

Its module declares it in literals, which are read without importing it (its libraries may be in the job's environment
alone):

INPUTS: {name: path} of files that it reads besides its stage's inputs, made by other rules.
INSTEAD: the name of one of its own settings, a folder that replaces all ``INPUTS`` where it is given.
FILES: names among its own settings that are a user's files; they become inputs.
SOURCES: such names too, but of files that only rules of the engine's own read.
GPU: whether it wants one.

Rule files alone read this, and no stage: what is changed here re-runs nothing by itself.
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
    """Return the package of a stage, ``"cxr.imaging.organs"``; its name is that of one folder of one wing."""
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


def engine_inputs(stage: str, name: str, own: dict | None = None) -> dict[str, str]:
    """Return {name: path} of what an engine reads besides its stage's inputs.

    Raises UserError for a user's file that is not there.
    """
    package = package_of(stage)
    folder = (own or {}).get(declared(package, name, "INSTEAD", None))
    if folder:
        return {"folder": str(existing_folder(f"{stage}.{name}", folder))}
    return declared(package, name, "INPUTS", {}) | _users_files(stage, name, own, "FILES")


def engine_sources(stage: str, name: str, own: dict | None = None) -> dict[str, str]:
    """Return {name: path} of a user's files that rules of the engine's own read.

    Raises UserError for one that is not there.
    """
    return _users_files(stage, name, own, "SOURCES")


def _users_files(stage: str, name: str, own: dict | None, constant: str) -> dict[str, str]:
    files = {key: own[key] for key in declared(package_of(stage), name, constant, ())} if own else {}
    for key, value in files.items():
        existing_file(f"{stage}.{name}.{key}", value)
    return files
