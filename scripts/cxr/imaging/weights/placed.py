"""Converting weights files that users download themselves to safetensors, once, and in a separate job."""

import importlib
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cxr.base.atomic import atomic_folder
from cxr.imaging.weights import manifest as manifests
from cxr.imaging.weights.manifest import WeightsOptions

REMEDY = "delete it and download it again (docs/how-to/models.md)"
COPIED = (".json", ".model")  # file types of a checkpoint's folder that are copied unchanged


def run(*, sources: list[str], weights: list[str], manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Convert each of ``sources`` to its path in ``weights``. Raises UserError if one is not the published file."""
    published, used, facts = [], [], {}
    for (name, sha256), *paths in zip(options.files.items(), sources, weights, strict=True):
        source, target = map(Path, paths)
        convert = shutil.copyfile if source.suffix in COPIED else find_converter(options)
        published.append(manifests.check_published_file(source, name, name, sha256, REMEDY))
        facts[name] = manifests.install_file(source, target, convert, options, REMEDY)
        used.append(manifests.file_facts(target.name, target))
    manifests.write_manifest(manifest, options, attrs, published, used, facts)


def run_folder(*, sources: list[str], weights: str, manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Convert ``sources``, the files of a checkpoint in LISA's layout, into the folder ``weights``.

    The folder appears only when it is complete. Raises UserError if a file differs from the published file.
    """
    with atomic_folder(weights) as making:
        names = [Path(source).name.removeprefix("pytorch_").replace(".bin", ".safetensors") for source in sources]
        targets = [str(making / name) for name in names]
        run(sources=sources, weights=targets, manifest=manifest, options=options, attrs=attrs)


def find_converter(options: WeightsOptions) -> Callable[[Path, Path], dict]:
    """Return the function that converts a file: a state dict if ``options`` has ``parts``, otherwise a YOLO net."""
    if options.parts:
        convert = importlib.import_module("cxr.imaging.weights.state_dict").convert_state_dict
        how = {"dropped": options.dropped or "", "float32": bool(options.float32)}
        return partial(convert, parts=tuple(options.parts), **how)
    return getattr(importlib.import_module("cxr.imaging.weights.yolo"), f"convert_{options.artefact}")
