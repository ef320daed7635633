"""The catalogue ``resources/weights.yaml``: which weights files the selected engines need, and whether they exist."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from cxr.base.errors import UserError, existing_file
from cxr.base.resources import load_resource

RESOURCE_FILES = ("weights.yaml",)
CONVERTED_FOLDER = "results/weights"  # folder of the converted weights
PARAMS = ("source", "revision", "licence", "used_by")
"""Keys of an entry that become params of its rule. They contain no prose, so that editing prose reruns nothing."""

TOKENIZER = ("tokenizer.model", "tokenizer.json")  # a tokenizer needs one of these files; the extras are optional
TOKENIZER_EXTRAS = ("added_tokens.json", "special_tokens_map.json", "tokenizer_config.json")
SUFFIXES = (".safetensors", ".bin")
PARTS = (r"model(?:-(\d+)-of-(\d+))?\.safetensors", r"pytorch_model(?:-(\d+)-of-(\d+))?\.bin")
"""Patterns of the names of weights files in a folder. The first pattern that matches a file is used."""


@cache
def read_entries(of_settings: bool = False) -> dict[str, dict]:
    """Return {artefact: entry} of ``resources/weights.yaml``. An artefact is a set of weights files.

    With ``of_settings``, return the models that settings name, which stay where they are; otherwise the weights that
    rules fetch or convert. The result is shared, so do not modify it.
    """
    entries = load_resource(RESOURCE_FILES[0])
    return {artefact: entry for artefact, entry in entries.items() if ("setting" in entry) == of_settings}


def rule_params(pins: dict[str, str], folder: str = "weights") -> dict[str, dict]:
    """Return {artefact: params of its rule} for the weights that rules fetch or convert.

    ``pins``: setting ``weights.sha256``, which overrides digests of the catalogue; ``folder``: folder of files that the
    user downloaded. Raises UserError if ``pins`` names an unknown file.
    """
    entries = read_entries()
    files = {artefact: _files(artefact, entry, folder) for artefact, entry in entries.items()}
    # keys of ``weights.sha256``: the file's name if the user downloaded it, else ``artefact/path on the hub``
    pin_names = {
        artefact: {file: f"{artefact}/{file}" if "repository" in entries[artefact] else file for file in artefact_files}
        for artefact, artefact_files in files.items()
    }
    names = {name for artefact_pins in pin_names.values() for name in artefact_pins.values()}
    names |= {f"{artefact}/{file}" for artefact, entry in read_entries(True).items() for file in entry["files"]}
    for name in pins:
        if name not in names and not entries.get(name.partition("/")[0], {}).get("folder"):
            raise UserError(f"weights.sha256 has an unknown file {name!r}: choose one of {', '.join(sorted(names))}")
    return {
        artefact: {name: entry[name] for name in PARAMS}
        | {name: entry.get(name) for name in ("repository", "tensors", "values", "parts", "dropped", "float32")}
        | {"artefact": artefact}
        | {"files": {file: pins.get(pin_names[artefact][file], digest) for file, digest in files[artefact].items()}}
        for artefact, entry in entries.items()
    }


def plan_models(used: Mapping[str, tuple[str, str]], pins: Mapping[str, str]) -> dict[str, dict]:
    """Return {name: {``sources``, ``options``}} for those models of the catalogue that settings name.

    ``sources``: the model's files if it is in a folder; ``options``: params of the rule; ``used``: {setting: (model,
    revision)}; ``pins``: as in :func:`rule_params`. A setting names a model by its repository or by a folder of the
    same name. A second copy or revision gets a number in its name. Raises UserError if a folder lacks a file.
    """
    model_by_name: dict[str, dict] = {}
    for setting, (model, revision) in used.items():
        is_folder = Path(model).is_dir()
        for artefact, entry in read_entries(True).items():
            pattern = re.escape(entry["setting"]).replace("<name>", "[^.]+")
            model_id, entry_id = (Path(model).name, entry["folder"]) if is_folder else (model, entry.get("repository"))
            if model_id != entry_id or not re.fullmatch(pattern, setting):
                continue
            files = entry["files"]
            if is_folder:  # its weights may be split differently from the published ones
                parts = _parts(Path(model)) or [file for file in files if Path(file).suffix in SUFFIXES]
                names = [file for file in files if Path(file).suffix not in SUFFIXES] + parts
                files = {file: files.get(file) for file in names}
            options = {
                "artefact": artefact, "source": entry["source"], "repository": None if is_folder else model,
                "revision": None if is_folder else revision or None, "licence": entry["licence"],
                "used_by": entry["setting"], "tensors": None, "values": None,
                "files": {file: pins.get(f"{artefact}/{file}", sha256) for file, sha256 in files.items()},
            }  # fmt: skip
            sources = [str(existing_file(setting, str(Path(model, file)))) for file in files] if is_folder else []
            model_params = {"sources": sources, "options": options}
            if model_params not in model_by_name.values():
                copies = sum(previous["options"]["artefact"] == artefact for previous in model_by_name.values())
                model_by_name[f"{artefact}-{copies + 1}" if copies else artefact] = model_params
    return model_by_name


def list_placed_files(folder: str) -> dict[str, list[str]]:
    """Return {artefact: paths} of the files that the user must download into ``folder``."""
    return {
        artefact: [str(Path(folder, file)) for file in _files(artefact, entry, folder)]
        for artefact, entry in read_entries().items()
        if "repository" not in entry
    }


def _files(artefact: str, entry: dict, folder: str) -> dict[str, str | None]:
    """Return {file: sha256 or None} of an artefact. If the artefact is a folder, list the files that it contains."""
    if "folder" not in entry:
        return entry["files"]
    folder_entries = [entry for entry in read_entries().values() if "folder" in entry]
    digests = {file: sha256 for folder_entry in folder_entries for file, sha256 in folder_entry["files"].items()}
    return {file: digests.get(file) for file in _checkpoint(entry, Path(folder))}


def _checkpoint(entry: dict, folder: Path) -> list[str]:
    """Return the paths of a checkpoint's configuration, tokenizer and weights. Missing files have published names."""
    model_folder, folders = entry["folder"], (entry["folder"], entry["tokenizer"])
    tokenizer_folder = next((name for name in folders if _existing_files(folder / name, TOKENIZER)), folders[1])
    tokenizer = _existing_files(folder / tokenizer_folder, TOKENIZER) or [TOKENIZER[0]]
    tokenizer += _existing_files(folder / tokenizer_folder, TOKENIZER_EXTRAS)
    published_weights = [Path(file).name for file in entry["files"] if Path(file).suffix in SUFFIXES]
    weights = _parts(folder / model_folder) or published_weights
    files = [f"{model_folder}/config.json", *(f"{tokenizer_folder}/{name}" for name in tokenizer)]
    return files + [f"{model_folder}/{name}" for name in weights]


def _existing_files(folder: Path, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if (folder / name).is_file()]


def _parts(folder: Path) -> list[str]:
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    for pattern in PARTS:
        for match in filter(None, (re.fullmatch(pattern, name) for name in names)):
            if match[1] is None:
                return [match[0]]
            width, count, (begin, end) = len(match[1]), int(match[2]), match.span(1)
            return [f"{match[0][:begin]}{part:0{width}d}{match[0][end:]}" for part in range(1, count + 1)]
    return []


def select_converted(engine_files: dict[str, dict[str, str]]) -> list[str]:
    """Return, sorted, the artefacts whose converted weights are among ``engine_files``, {stage: {input: path}}."""
    paths = [Path(path) for files in engine_files.values() for path in files.values()]
    converted_paths = [path.relative_to(CONVERTED_FOLDER) for path in paths if path.is_relative_to(CONVERTED_FOLDER)]
    return sorted({path.parts[0].removesuffix(".safetensors") for path in converted_paths})


def check_placed(artefacts: Iterable[str], folder: str, user_by_artefact: Mapping[str, str] | None = None) -> None:
    """Raise UserError if a file that the user must download is missing, unless its artefact is already converted.

    ``user_by_artefact``: {artefact: setting that needs it}, by default the engine that the catalogue names.
    """
    entries, paths = read_entries(), list_placed_files(folder)
    for artefact in artefacts:
        if artefact not in paths or Path(CONVERTED_FOLDER, f"{artefact}.json").is_file():
            continue
        entry = entries[artefact]
        if missing := [path for path in paths[artefact] if not Path(path).is_file()]:
            stage, _, engine = entry["used_by"].partition(".")
            user = (user_by_artefact or {}).get(artefact) or f"{stage}.engine {engine!r}"
            raise UserError(
                f"{user} needs {', '.join(missing)}, not downloaded yet: {entry['get']}, or set weights.folder "
                "(docs/how-to/models.md)"
            )
