"""Converting a checkpoint that was placed by hand as a folder of several files, once and in a separate job."""

from pathlib import Path

from cxr.base.atomic import atomic_folder
from cxr.imaging.weights import lisa
from cxr.imaging.weights import manifest as manifests
from cxr.imaging.weights.manifest import WeightsOptions, file_facts
from cxr.imaging.weights.placed import convert_file


def run(*, sources: list[str], weights: str, manifest: str, options: WeightsOptions, attrs: dict) -> None:
    """Convert ``sources``, the files of a checkpoint in LISA's layout, into the folder ``weights``.

    The folder appears only when it is complete. Raises UserError for a file that differs from the published one.
    """
    published, used, facts = [], [], {}
    with atomic_folder(weights) as making:
        for (name, sha256), source in zip(options.files.items(), map(Path, sources), strict=True):
            target = making / lisa.made_name(source.name)
            facts |= convert_file(name, sha256, source, target, lisa.convert_lisa, options)
            published.append(file_facts(name, source))
            used.append(file_facts(target.name, target))
    manifests.write(manifest, options, attrs, published, used, facts)
