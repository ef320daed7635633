"""Formats by name: a module of this folder that declares ``WHAT``, found without importing it.

A format declares, in literals:

WHAT: what its file is, in a clause for the settings.
FOLDER: True where it is a folder and no file.
LESIONS: {label: lesion type} of its labels that have one; an infiltrate is an opacity, as in the reports (ours).
HOLDS: which fields of :class:`cxr.annotations.regions.Annotation` its file has besides ``image`` and ``label``.

and offers ``read(key, path)``, which returns :class:`cxr.annotations.regions.Annotations`, and ``write(path, held)``,
which writes such annotations in the layout that ``read`` reads. Nothing is clipped, mapped or left out in reading but
rows that say "no finding", whose pictures count as looked at.
"""

import ast
from pathlib import Path

from cxr.base.literals import assigned


def _declared(source: Path) -> dict[str, object]:
    """Return the literals WHAT and FOLDER of a module."""
    if "\nWHAT = " not in source.read_text(encoding="utf-8"):
        return {}
    values = assigned(source)
    return {name: ast.literal_eval(values[name]) for name in ("WHAT", "FOLDER") if name in values}


_FOUND = {path.stem: found for path in sorted(Path(__file__).parent.glob("*.py")) if (found := _declared(path))}
FORMATS = tuple(_FOUND)
"""The names of the formats there are."""
FOLDERS = tuple(name for name, found in _FOUND.items() if found.get("FOLDER"))
"""Those whose path is a folder."""


def described() -> str:
    """Return what the file of each format is, for people: ``coco: …; nih: …``."""
    return "; ".join(f"{name}: {found['WHAT']}" for name, found in _FOUND.items())
