"""Weights placed by hand: pickles, converted once to safetensors in a job of their own."""

import importlib
from pathlib import Path

from ils.core.store import atomic
from ils.weights import manifest as manifests
from ils.weights import verify
from ils.weights.manifest import Options, file_facts

REMEDY = "delete it and download it again (docs/models.md)"


def run(*, sources: list[str], weights: list[str], manifest: str, options: Options, attrs: dict) -> None:
    """Convert ``sources`` to ``weights``, one to one, with the artefact's own converter.

    Raises UserError for a file that is not what was published.
    """
    module = importlib.import_module(f"ils.weights.{options.artefact}")
    convert = getattr(module, f"convert_{options.artefact}")
    published, used, facts = [], [], {}
    for (name, sha256), source, target in zip(
        options.files.items(), map(Path, sources), map(Path, weights), strict=True
    ):
        verify.published_file(source, name, sha256, REMEDY)
        with atomic(target) as temporary:
            facts[name] = convert(source, temporary)
            if target.suffix == ".safetensors":
                verify.safetensors_file(temporary, source, REMEDY, options.tensors, options.values)
            elif target.suffix == ".json":
                verify.json_file(temporary, source, REMEDY)
        published.append(file_facts(name, source))
        used.append(file_facts(target.name, target))
    manifests.write(manifest, options, attrs, published, used, facts)
