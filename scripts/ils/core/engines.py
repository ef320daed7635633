"""Engines by name: an engine of a stage is a module or package in the stage's that has a function ``load``.

What the workflow must know of an engine before any job, its module declares in literals, which are read without
importing it (its libraries may be in the job's environment alone):

INPUTS: {name: path} of files that it reads besides its stage's inputs, made by other rules.
INSTEAD: the name of one of its own settings, a folder that replaces all ``INPUTS`` where it is given.
FILES: names among its own settings that are a user's files; they become inputs.
SOURCES: such names too, but of files that only rules of the engine's own read.
GPU: whether it wants one.
"""

import ast
import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from ils.core.run import UserError, existing_file, existing_folder

INTERFACE = "engine"
"""The module of a stage's package that says what an engine is, and is none itself."""


def engine_names(package: str) -> tuple[str, ...]:
    """Return the names of the engines in a package, without importing them: some need heavy libraries."""
    names = []
    for folder in map(Path, importlib.import_module(package).__path__):
        for module in pkgutil.iter_modules([str(folder)]):
            source = folder / module.name / "__init__.py" if module.ispkg else folder / f"{module.name}.py"
            if module.name != INTERFACE and "\ndef load(" in source.read_text(encoding="utf-8"):
                names.append(module.name)
    return tuple(sorted(names))


@dataclass(frozen=True)
class Setup:
    """What an engine is given besides its stage's options.

    own: its own settings, the section of its name; files: paths by the names of its ``INPUTS`` and ``FILES``.
    device: ``auto``, ``cpu`` or ``cuda``; batch: images at a time. No result depends on these two.
    """

    own: dict = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    device: str = "auto"
    batch: int = 1

    @classmethod
    def of(cls, own: dict, files: dict[str, str], compute: dict | None) -> "Setup":
        """Put together what a stage was given; ``compute`` is the settings' section of that name."""
        compute = compute or {}
        return cls(own, files, compute.get("device", "auto"), compute.get("batch", 1))


def declared(package: str, name: str, constant: str, default: object) -> object:
    """Return a literal that an engine's module declares, without importing the module."""
    folder = Path(importlib.import_module(package).__path__[0])
    source = next(path for path in (folder / f"{name}.py", folder / name / "__init__.py") if path.is_file())
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == constant:
            return ast.literal_eval(node.value)
    return default


def engine_inputs(stage: str, name: str, own: dict | None = None) -> dict[str, str]:
    """Return {name: path} of what an engine reads besides its stage's inputs.

    Raises UserError for a user's file that is not there.
    """
    package = f"ils.{stage}"
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
    files = {key: own[key] for key in declared(f"ils.{stage}", name, constant, ())} if own else {}
    for key, value in files.items():
        existing_file(f"{stage}.{name}.{key}", value)
    return files


def engine_module(package: str, name: str) -> ModuleType:
    """Import the engine ``name`` of a stage's package (``"ils.organs"``).

    Raises UserError that names the setting and the engines there are.
    """
    names = engine_names(package)
    if name not in names:
        stage = package.rpartition(".")[2]
        raise UserError(f"{stage}.engine is {name!r}, which does not exist: choose one of {', '.join(names)}")
    return importlib.import_module(f"{package}.{name}")
