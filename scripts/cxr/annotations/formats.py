"""Finding annotation formats by name: each module of this folder that declares ``WHAT``, without importing it.

A format declares these literals:

WHAT: description of its file, for the settings.
FOLDER: True for a folder instead of a file.
LESIONS: {label: lesion type}, if labels have one; an infiltrate is an opacity, as in the reports (our choice).

It has ``read(key, path)``, which returns :class:`cxr.annotations.regions.Annotations`. Reading does not clip, map or
exclude anything, except rows "no finding", whose images count as annotated.
"""

import ast
from pathlib import Path

from cxr.base.engines import read_assignments

_LITERALS_BY_FORMAT = {
    path.stem: {name: ast.literal_eval(value) for name, value in values.items() if name in ("WHAT", "FOLDER")}
    for path in sorted(Path(__file__).parent.glob("*.py"))
    if "WHAT" in (values := read_assignments(path))
}
FORMATS = tuple(_LITERALS_BY_FORMAT)  # the names of all formats
FOLDERS = tuple(name for name, literals in _LITERALS_BY_FORMAT.items() if literals.get("FOLDER"))  # formats of folders


def describe_formats() -> str:
    """Return the description of each format's file in one text: ``coco: …; nih: …``."""
    return "; ".join(f"{name}: {literals['WHAT']}" for name, literals in _LITERALS_BY_FORMAT.items())
