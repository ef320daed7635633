"""Converting pickled weights that were placed by hand to safetensors, once and in a separate job."""

import importlib
from collections.abc import Callable
from pathlib import Path

from cxr.base.atomic import atomic_file
from cxr.imaging.weights import manifest as manifests
from cxr.imaging.weights import verify
from cxr.imaging.weights.manifest import WeightsOptions, file_facts

Converter = Callable[[Path, Path], dict]
REMEDY = "delete it and download it again (docs/how-to/models.md)"


def run(*, sources: list[str], weights: list[str], manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Convert ``sources`` to ``weights``, one to one, with the artefact's own converter.

    Raises UserError for a file that differs from the published one.
    """
    module = importlib.import_module(f"cxr.imaging.weights.{options.artefact}")
    convert = getattr(module, f"convert_{options.artefact}")
    published, used, facts = [], [], {}
    for (name, sha256), source, target in zip(
        options.files.items(), map(Path, sources), map(Path, weights), strict=True
    ):
        with atomic_file(target) as temporary:
            facts |= convert_file(name, sha256, source, temporary, convert, options, target.suffix)
        published.append(file_facts(name, source))
        used.append(file_facts(target.name, target))
    manifests.write(manifest, options, attrs, published, used, facts)


def convert_file(
    name: str,
    sha256: str | None,
    source: Path,
    target: Path,
    convert: Converter,
    options: WeightsOptions,
    suffix: str = "",
) -> dict[str, dict]:
    """Check a file, convert it and check the result; return {name: the converter's result}."""
    verify.published_file(source, name, sha256, REMEDY)
    facts = convert(source, target)
    suffix = suffix or target.suffix
    if suffix == ".safetensors":
        verify.safetensors_file(target, source, REMEDY, options.tensors, options.values)
    elif suffix == ".json":
        verify.json_file(target, source, REMEDY)
    return {name: facts}
