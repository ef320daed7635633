"""What weights there are, which of them the chosen engines read, and whether they are there; for the driver alone."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import yaml

from ils.core.places import RESOURCES
from ils.core.run import UserError

RESOURCE_FILES = ("weights.yaml",)
MADE = "results/weights"
"""Where the rules put what they make."""
PARAMS = ("source", "revision", "licence", "used_by")
"""What an entry tells its rule as it stands; prose for people is left out, so that an edit of it re-runs nothing."""


@cache
def read() -> dict[str, dict]:
    """Return {artefact: entry} of ``resources/weights.yaml``; one for all callers, not to be changed."""
    return yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))


def pin_name(artefact: str, entry: dict, file: str) -> str:
    """Return the name of a file in ``weights.sha256``: its own if placed by hand, else ``artefact/path on the hub``."""
    return f"{artefact}/{file}" if "repository" in entry else file


def rule_params(pins: dict[str, str]) -> dict[str, dict]:
    """Return {artefact: params of its rule}; ``pins`` is ``weights.sha256`` and wins over the catalogue.

    Raises UserError for a pin of a file that no artefact has.
    """
    entries = read()
    names = {pin_name(artefact, entry, file) for artefact, entry in entries.items() for file in entry["files"]}
    for name in pins:
        if name not in names:
            raise UserError(
                f"weights.sha256 names {name!r}, no file of the weights: choose one of {', '.join(sorted(names))}"
            )
    return {
        artefact: {name: entry[name] for name in PARAMS}
        | {name: entry.get(name) for name in ("repository", "tensors", "values")}
        | {
            "artefact": artefact,
            "files": {file: pins.get(pin_name(artefact, entry, file), known) for file, known in entry["files"].items()},
        }
        for artefact, entry in entries.items()
    }


def placed(folder: str) -> dict[str, list[str]]:
    """Return {artefact: paths} of what is placed by hand in ``folder``."""
    return {
        artefact: [str(Path(folder, file)) for file in entry["files"]]
        for artefact, entry in read().items()
        if "repository" not in entry
    }


def needed(engine_files: dict[str, dict[str, str]]) -> list[str]:
    """Return the artefacts among ``engine_files`` ({stage: {name: path}}), sorted."""
    paths = [Path(path) for files in engine_files.values() for path in files.values()]
    made = [path.relative_to(MADE) for path in paths if path.is_relative_to(MADE)]
    return sorted({path.parts[0].removesuffix(".safetensors") for path in made})


def check_placed(artefacts: Iterable[str], folder: str) -> None:
    """Raise UserError where a file is missing that was to be placed by hand; what was made from it will do."""
    entries, paths = read(), placed(folder)
    for artefact in artefacts:
        if artefact not in paths or Path(MADE, f"{artefact}.json").is_file():
            continue
        entry = entries[artefact]
        if missing := [path for path in paths[artefact] if not Path(path).is_file()]:
            stage, _, engine = entry["used_by"].partition(".")
            raise UserError(
                f"{stage}.engine {engine!r} needs {', '.join(missing)}, not there yet: {entry['get']}, "
                "or set weights.folder (docs/models.md)"
            )
