"""Finding engines by name. An engine is one of a stage's implementations; the stage's setting ``engine`` chooses it.

An engine is a module or package with a function ``load`` in the package of its stage. An installed package can add an
engine by an entry point in the group :data:`ENGINES`. :mod:`cxr.workflow.engine_files` documents the constants in which
an engine declares its files and needs.
"""

import ast
import importlib
import pkgutil
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args

from cxr.base.errors import UserError
from cxr.base.settings import Section, key, type_hints

INTERFACE = "engine"  # module of a stage's package that defines the interface of its engines; it is not an engine
ENGINES = "cxr_ils.engines"  # group of entry points that name modules of engines: ``"boxes.corner" = "corner_boxes"``
SETTINGS = "cxr_ils.settings"  # group for their settings: ``"boxes.corner" = "corner_boxes.settings:CornerSettings"``


def engine_names(package: str) -> tuple[str, ...]:
    """Return the names of the engines in a package. No engine is imported, because some need heavy libraries."""
    names = []
    for folder in map(Path, importlib.import_module(package).__path__):
        for module in pkgutil.iter_modules([str(folder)]):
            source = folder / module.name / "__init__.py" if module.ispkg else folder / f"{module.name}.py"
            if module.name != INTERFACE and "\ndef load(" in source.read_text(encoding="utf-8"):
                names.append(module.name)
    return tuple(sorted(names))


@cache
def installed_engines(stage: str) -> dict[str, str]:
    """Return {engine: module name} of the engines that installed packages offer for a stage, such as "boxes"."""
    return {name: module for (of_stage, _, name), module in _installed_modules() if of_stage == stage}


@cache  # reads the metadata of every installed package
def _installed_modules() -> list[tuple[tuple[str, str, str], str]]:
    return sorted((point.name.rpartition("."), point.value) for point in entry_points(group=ENGINES))


def with_installed_engines(section: type[Section], stage: str, engine: str = "") -> type[Section]:
    """Return ``section``, the settings class of a stage, extended by the engines that installed packages offer.
    Raises UserError if ``engine`` is neither built in nor offered by a package in this environment."""
    built_in = get_args(type_hints(section)["engine"])
    engines = [name for name in installed_engines(stage) if name not in built_in]
    if engine and built_in and engine not in (*built_in, *engines):
        raise UserError(f"{stage}.engine is {engine!r}, which this environment lacks: install the engine's package")
    if not engines:
        return section
    kinds = {name: entry_points(group=SETTINGS, name=f"{stage}.{name}") for name in engines}
    sections: dict[str, Any] = {name: next(iter(points)).load() for name, points in kinds.items() if points}
    namespace = {name: key(kind, f"Settings of the engine {name}.") for name, kind in sections.items()}
    namespace["engine"] = key(section.__dataclass_fields__["engine"].default, "Name of the engine.")
    annotations = sections | {"engine": Literal[(*built_in, *engines)]}
    return type(section.__name__, (section,), namespace | {"__annotations__": annotations})


@dataclass(frozen=True)
class Setup:
    """Arguments of an engine in addition to the options of its stage.

    Results do not depend on ``device``, ``batch``, ``requested_gpus`` and ``compute``.
    """

    engine_settings: dict = field(default_factory=dict)  # the settings section with the engine's name
    files: dict[str, str] = field(default_factory=dict)  # {name in the engine's INPUTS or FILES: path}
    device: str = "auto"  # auto, cpu or cuda
    batch: int = 1  # number of images per batch
    requested_gpus: int | None = None  # number of GPUs that the job requested, None if unknown
    compute: dict = field(default_factory=dict)  # the settings section ``compute``
    seed: int = 0  # random seed

    @classmethod
    def of_job(
        cls, files: dict[str, str], compute: dict | None, engine: str = "", *, seed: int = 0,
        engine_settings: dict | None = None,
    ) -> "Setup":  # fmt: skip
        """Return the Setup of a job. ``compute`` is the settings section ``compute``.

        The batch size is ``compute.batches[engine]`` if the settings give it, otherwise ``compute.batch``.
        """
        compute = compute or {}
        batch, device = compute.get("batches", {}).get(engine, compute.get("batch", 1)), compute.get("device", "auto")
        return cls(engine_settings or {}, files, device, batch, compute.get("asked"), compute, seed)


def engine_module(package: str, name: str) -> ModuleType:
    """Import the engine ``name`` from a stage's package (``"cxr.imaging.organs"``) or from an installed package.
    Raises UserError if no engine has this name. The message lists the available engines."""
    stage = package.rpartition(".")[2]
    modules = installed_engines(stage) | {engine: f"{package}.{engine}" for engine in engine_names(package)}
    if name not in modules:
        raise UserError(f"{stage}.engine is {name!r}, which does not exist: choose one of {', '.join(sorted(modules))}")
    return importlib.import_module(modules[name])


def read_assignments(source: Path) -> dict[str, ast.expr]:
    """Return a module's top-level assignments, {name: syntax tree of the value}, for :func:`ast.literal_eval`.

    The module is parsed, not imported, because libraries that it imports may be missing.
    """
    return _assignments(source.read_text(encoding="utf-8"))


@cache
def _assignments(source: str) -> dict[str, ast.expr]:
    lines = (node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    return {line.targets[0].id: line.value for line in lines if isinstance(line.targets[0], ast.Name)}
