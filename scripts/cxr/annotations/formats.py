"""Names of the annotation formats. A format is a module of this folder that declares ``WHAT``. None is imported here.

A format declares these literals:

WHAT: description of the format's file, for the settings.
FOLDER: True if the dataset is a folder instead of a file.
LESIONS: {label: ILS lesion type that it means}. Other labels are absent. An infiltrate is an opacity (our choice).

The function ``read(key, path)`` of a format returns :class:`cxr.annotations.regions.Annotations`. ``key`` is the
setting that names the file ``path``. The regions are not clipped, and have the labels of the file. Only rows with the
label "no finding" give no region, but their images count as annotated."""

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
    """Return the descriptions of all formats as one text, in the form ``coco: …; nih: …``."""
    return "; ".join(f"{name}: {literals['WHAT']}" for name, literals in _LITERALS_BY_FORMAT.items())
