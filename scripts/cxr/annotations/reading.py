"""Reading human boxes and masks in any format, by its name."""

import importlib
from pathlib import Path
from types import ModuleType

from cxr.annotations.formats import FORMATS
from cxr.annotations.regions import UNLISTED, Annotation, Annotations, image_name

__all__ = ["UNLISTED", "Annotation", "Annotations", "image_name", "lesions", "module", "read"]


def module(kind: str) -> ModuleType:
    """Return the module of one of :data:`cxr.annotations.formats.FORMATS`. Raises ValueError for another name."""
    if kind not in FORMATS:
        raise ValueError(f"there is no format {kind!r}: choose one of {', '.join(FORMATS)}")
    return importlib.import_module(f"cxr.annotations.{kind}")


def read(key: str, path: str | Path, kind: str) -> Annotations:
    """Return the regions of a file of a format, and the names of all images that annotators read.

    The image of a region may be UNLISTED.

    ``key``: the setting that names the file. Raises UserError for a file that cannot be read as that format.
    """
    regions, image_names = module(kind).read(key, Path(path))
    return Annotations(regions, (image_names | {region.image for region in regions}) - {UNLISTED})


def lesions(kind: str) -> dict[str, str]:
    """Return {label: lesion type} for the labels of a format that have a lesion type."""
    return module(kind).LESIONS
