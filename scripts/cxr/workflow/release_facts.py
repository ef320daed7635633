"""Collect the facts on a run that a package may publish: its settings without paths, and its environments.

Only rule files use this module, and no stage: the values reach the package as params.
"""

import re
from pathlib import Path

import yaml

from cxr.base.paths import SCRIPTS
from cxr.workflow.settings import Settings

ENVS = SCRIPTS.parent / "envs"
STAGES = ("cohort", "frames", "reports", "organs", "anomaly", "anatomy", "boxes", "masks", "dataset")
"""Stages whose options decide the content of a dataset."""
ENGINES = ("reports", "organs", "anomaly", "anatomy", "boxes")
PLACES = (
    "root", "tables", "manifest", "exclude", "chexstruct", "table", "folder", "server", "mapping_server",
    "green_server",
)  # fmt: skip
"""Keys that name a user's file, folder or address."""
PLACE = re.compile(r"^(?:[/~\\.]|[A-Za-z]:[\\/]|\w+://)|@")
"""Texts that look like a path or address under any other key."""
TABLES = ("pairs_per_file", "images_per_file", "coco_pixels", "name", "version", "date", "licence")
MIXES = ("pairs_per_file", "images_per_file", "name", "version", "date", "licence", "creator", "cite")
PACKAGE = ("name", "version", "date", "licence", "creator", "cite", "url")


def release_options(settings: Settings, options: dict[str, dict]) -> dict[str, dict]:
    """Return the options of the release's rules; ``options`` are those of the other stages."""
    release = settings.release.as_dict()
    kinds = settings.release.kinds()
    stage_settings = {stage: without_places(options[stage]) for stage in STAGES}
    about = {
        "seed": settings.seed,
        "source": settings.cohort.source,
        "settings": stage_settings,
        "engines": {stage: options[stage]["engine"] for stage in ENGINES},
    }
    return {
        "release": {name: release[name] for name in TABLES} | {"withhold": kinds},
        "release_mixes": {name: release[name] for name in MIXES} | {"withhold": kinds},
        "release_dicom": {"date": release["date"], "ids": "ids" in kinds},
        "release_package": {name: release[name] for name in PACKAGE} | {"withhold": kinds} | about,
    }


def without_places(value: object, name: str = "") -> object:
    """Return settings with every text emptied that names a file, folder, address or person's mail."""
    if isinstance(value, dict):
        return {key: without_places(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [without_places(inner, name) for inner in value]
    if isinstance(value, str) and (name in PLACES or PLACE.search(value) or Path(value).is_absolute()):
        return ""
    return value


def environments(engines: dict[str, str]) -> dict[str, list[str]]:
    """Return {environment: pins of its packages} of the stages that lead to a dataset, from ``envs/``."""
    pins_by_environment = {}
    for stage in STAGES:
        file = next((ENVS / f"{name}.yaml" for name in (f"{stage}-{engines.get(stage)}", stage)
                     if (ENVS / f"{name}.yaml").is_file()), None)  # fmt: skip
        if file:
            dependencies = yaml.safe_load(file.read_text(encoding="utf-8"))["dependencies"]
            pins = next((part["pip"] for part in dependencies if isinstance(part, dict)), [])
            pins_by_environment[file.stem] = [
                part for part in dependencies if isinstance(part, str) and part != "pip"
            ] + pins
    return pins_by_environment
