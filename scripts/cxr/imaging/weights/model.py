"""Noting a model that a setting names: its revision, and the digest of each file, once and in a separate job.

The model stays where it lies, in a folder or in the hub's cache. Nothing is downloaded, copied or loaded.
"""

from dataclasses import replace
from pathlib import Path

from cxr.imaging.weights import manifest as manifests
from cxr.imaging.weights.manifest import WeightsOptions, file_facts
from cxr.imaging.weights.verify import check_published_file
from cxr.nets.hub import find_downloaded_model

REMEDY = "download it again (docs/how-to/models.md)"


def run(*, sources: list[str], manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Write the manifest of a model. ``sources``: its files in a folder; empty for one of the hub, in its cache.

    Raises UserError if it is not on this machine, or if a file is missing or differs from a known digest.
    """
    paths, commit = [Path(path) for path in sources], None
    if options.repository:
        key, _, setting = options.used_by.rpartition(".")
        folder = Path(find_downloaded_model(key, options.repository, options.revision or "", setting))
        # the cache has a folder for each commit
        paths, commit = [folder / name for name in options.files], folder.name
    for (name, sha256), path in zip(options.files.items(), paths, strict=True):
        check_published_file(path, f"{options.artefact}/{name}", sha256, REMEDY)
    facts = [file_facts(name, path) for name, path in zip(options.files, paths, strict=True)]
    manifests.write_manifest(manifest, replace(options, revision=commit), attrs, facts, facts)
