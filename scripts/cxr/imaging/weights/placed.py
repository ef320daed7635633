"""Converting weights that were placed by hand to safetensors, once and in a separate job."""

import importlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cxr.base.atomic import atomic_file, atomic_folder
from cxr.imaging.weights import manifest as manifests
from cxr.imaging.weights.manifest import WeightsOptions, file_facts

Converter = Callable[[Path, Path], dict]
REMEDY = "delete it and download it again (docs/how-to/models.md)"
COPIED = (".json", ".model")
"""Configurations and tokenizers of a checkpoint's folder, which stay as they are."""


def run(*, sources: list[str], weights: list[str], manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Convert ``sources`` to ``weights``, one to one. Raises UserError for a file that is not the published one."""
    published, used, facts = [], [], {}
    for (name, sha256), source, target in zip(
        options.files.items(), map(Path, sources), map(Path, weights), strict=True
    ):
        with atomic_file(target) as temporary:
            facts |= _convert_file(name, sha256, source, temporary, options, target.suffix)
        published.append(file_facts(name, source))
        used.append(file_facts(target.name, target))
    manifests.write_manifest(manifest, options, attrs, published, used, facts)


def run_folder(*, sources: list[str], weights: str, manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Convert ``sources``, the files of a checkpoint in LISA's layout, into the folder ``weights``.

    The folder appears only when it is complete. Raises UserError for a file that differs from the published one.
    """
    published, used, facts = [], [], {}
    with atomic_folder(weights) as making:
        for (name, sha256), source in zip(options.files.items(), map(Path, sources), strict=True):
            target = making / converted_name(source.name)
            facts |= _convert_file(name, sha256, source, target, options, target.suffix)
            published.append(file_facts(name, source))
            used.append(file_facts(target.name, target))
    manifests.write_manifest(manifest, options, attrs, published, used, facts)


def converted_name(name: str) -> str:
    """Return the name of the file that is made from a published one of a folder."""
    return name.removeprefix("pytorch_").replace(".bin", ".safetensors")


def find_converter(options: WeightsOptions) -> Converter:
    """Return the function that converts one file: of a state dict if the entry names its ``parts``, else of a YOLO."""
    if options.parts:
        convert = importlib.import_module("cxr.imaging.weights.state_dict").convert_state_dict
        how = {"dropped": options.dropped or "", "float32": bool(options.float32)}
        return partial(convert, parts=tuple(options.parts), **how)
    return getattr(importlib.import_module("cxr.imaging.weights.yolo"), f"convert_{options.artefact}")


def _convert_file(
    name: str, sha256: str | None, source: Path, target: Path, options: WeightsOptions, suffix: str
) -> dict[str, dict]:
    """Check a file, convert it and check the result; return {name: the converter's result}."""
    manifests.check_published_file(source, name, sha256, REMEDY)
    if source.suffix in COPIED:
        shutil.copyfile(source, target)
        facts: dict = {}
    else:
        facts = find_converter(options)(source, target)
    if suffix == ".safetensors":
        manifests.check_safetensors_file(target, source, REMEDY, options.tensors, options.values)
    elif suffix == ".json":
        manifests.check_json_file(target, source, REMEDY)
    return {name: facts}
