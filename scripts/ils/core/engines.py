"""Engines by name: an engine of a stage is a module of the stage's package that has a function ``load``."""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from ils.core.run import UserError


def engine_names(package: str) -> tuple[str, ...]:
    """Return the names of the engines in a package, without importing them: some need heavy libraries."""
    folders = [Path(folder) for folder in importlib.import_module(package).__path__]
    names = sorted(module.name for module in pkgutil.iter_modules([str(folder) for folder in folders]))
    sources = {name: (folder / f"{name}.py") for folder in folders for name in names}
    return tuple(
        name for name, path in sources.items() if path.is_file() and "\ndef load(" in path.read_text(encoding="utf-8")
    )


def engine_module(package: str, name: str) -> ModuleType:
    """Import the engine ``name`` of a stage's package (``"ils.organs"``).

    Raises UserError that names the setting and the engines there are.
    """
    names = engine_names(package)
    if name not in names:
        stage = package.rpartition(".")[2]
        raise UserError(f"{stage}.engine is {name!r}, which does not exist: choose one of {', '.join(names)}")
    return importlib.import_module(f"{package}.{name}")
