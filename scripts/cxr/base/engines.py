"""Engines by name: an engine of a stage is a module or package in the stage's that has a function ``load``.

What its module declares for the workflow: :mod:`cxr.workflow.engine_files`.
"""

import importlib
import pkgutil
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from cxr.base.errors import UserError

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
    device: ``auto``, ``cpu`` or ``cuda``; batch: images at a time; asked: GPUs that the job asked for, None where none
    is known. No result depends on these.
    """

    own: dict = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    device: str = "auto"
    batch: int = 1
    asked: int | None = None

    @classmethod
    def of(cls, own: dict, files: dict[str, str], compute: dict | None) -> "Setup":
        """Put together what a stage was given; ``compute`` is the settings' section of that name."""
        compute = compute or {}
        return cls(own, files, compute.get("device", "auto"), compute.get("batch", 1), compute.get("asked"))


def engine_module(package: str, name: str) -> ModuleType:
    """Import the engine ``name`` of a stage's package (``"cxr.imaging.organs"``).

    Raises UserError that names the setting and the engines there are.
    """
    names = engine_names(package)
    if name not in names:
        stage = package.rpartition(".")[2]
        raise UserError(f"{stage}.engine is {name!r}, which does not exist: choose one of {', '.join(names)}")
    return importlib.import_module(f"{package}.{name}")
