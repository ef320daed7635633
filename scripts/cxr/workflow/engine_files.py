"""Read the declarations in an engine's module, which the workflow needs before any job runs.

An engine is one implementation of a stage. Its module assigns literals to the names below. They are read without
importing the module, because only the job's environment may have the module's libraries.

INPUTS: {name: path} of files that the engine reads besides its stage's inputs. Other rules make these files.
INSTEAD: the name of an engine's setting for a folder. If the user gives this folder, it replaces all ``INPUTS``.
FILES: names of the engine's settings for files of the user. The given files become inputs of the stage's rule.
SOURCES: names of the engine's settings for files of the user that only additional rules of the engine read.
GPU: whether the engine needs a GPU.

A stage is named by its section of the settings: "organs", "semisyn.editing". Only rule files use this module, so an
edit here reruns no job by itself.
"""

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from cxr.base.engines import read_assignments
from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.paths import SCRIPTS
from cxr.workflow.code_digest import installed_module, module_file, packages_folder
from cxr.workflow.settings import Settings


@cache
def find_package(stage: str) -> str:
    """Return the package of a stage: "cxr.imaging.organs" for "organs", "cxr.semisyn.editing" for "semisyn.editing"."""
    if "." in stage:
        return f"cxr.{stage}"
    (folder,) = (SCRIPTS / "cxr").glob(f"*/{stage}/__init__.py")
    return ".".join(folder.parent.relative_to(SCRIPTS).parts)


def read_declaration(package: str, name: str, constant: str, default: object) -> object:
    """Return the literal that the module ``package.name`` assigns to ``constant``, or ``default`` if there is none."""
    node = _assigned(package, name).get(constant)
    return default if node is None else ast.literal_eval(node)


@cache
def _assigned(package: str, name: str) -> dict[str, ast.expr]:
    source = _engine_source(package, name)
    if source is None:
        raise UserError(f"there is no module {package}.{name} for the engine {name}: correct the engine's entry point")
    return read_assignments(source)


def _engine_source(package: str, name: str) -> Path | None:
    if module := installed_module(f"{package}.{name}"):
        return module_file(module, packages_folder(module))
    return module_file(f"{package}.{name}", SCRIPTS)


def environment_file(stage: str, engine: str) -> str:
    """Return the path of the conda environment file of a stage's engine, relative to a rule file.
    For an engine of an installed package, the file is environment.yaml beside the engine's module."""
    package = find_package(stage)
    if installed_module(f"{package}.{engine}") and (source := _engine_source(package, engine)):
        return str(source.with_name("environment.yaml"))
    return f"../../envs/{stage}-{engine}.yaml"


def num_gpus(stage: str, engine: str, settings: Settings) -> int:
    """Return the number of GPUs of an engine's job: 1 if it needs a GPU and ``compute.gpus`` allows one, else 0."""
    return min(1, settings.compute.gpus) if read_declaration(find_package(stage), engine, "GPU", False) else 0


def engine_inputs(stage: str, engine: str, section: Mapping) -> dict[str, str]:
    """Return {name: path} of the files that a stage's engine reads besides the stage's inputs.
    ``section``: the stage's settings. Raises UserError for a user's file or folder that is missing."""
    inputs, folder = (
        read_declaration(find_package(stage), engine, name, default)
        for name, default in (("INPUTS", {}), ("INSTEAD", ""))
    )
    path = _engine_settings(section, engine).get(folder)
    if folder and (path or not inputs):
        return {"folder": str(existing_folder(f"{stage}.{engine}.{folder}", path))}
    return inputs | users_files(stage, engine, section)


def users_files(stage: str, engine: str, section: Mapping, constant: str = "FILES") -> dict[str, str]:
    """Return {setting: path} of the files that the user gives to an engine in its settings.

    ``section``: the stage's settings. ``constant``: name of the declaration that lists these settings, "FILES"
    or "SOURCES". Raises UserError for a missing file.
    """
    values = _engine_settings(section, engine)
    names = [name for name in read_declaration(find_package(stage), engine, constant, ()) if values.get(name)]
    return {name: str(existing_file(f"{stage}.{engine}.{name}", values[name])) for name in names}


def _engine_settings(section: Mapping, engine: str) -> Mapping:
    """Return an engine's settings, {} if it has none. ``boxes.table`` is a path, so the engine ``table`` has none."""
    values = section.get(engine)
    return values if isinstance(values, Mapping) else {}
