"""Locating the files of the Indiana University collection before any job runs (standard library only)."""

import os
import re
from collections.abc import Iterable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from cxr.base.errors import UserError, existing_folder
from cxr.imaging.cohort.settings import CohortSettings

REPORTS = "ecgen-radiology"  # folder of the XML files in NLMCXR_reports.tgz
PROJECTIONS, HEADERS, CLUSTERS = "indiana_projections", "nlmcxr_dicom_metadata", "nlmcxr_tsne_pa"
"""Tables that say which images are frontal: one from Kaggle, and two from the package torchxrayvision."""
TABLE_COLUMNS = {
    PROJECTIONS: ("filename", "projection"),
    HEADERS: ("imageid", "View Position", "Patient Orientation"),
    CLUSTERS: ("imageid", "tsne-view"),
}
ENDINGS = (".png", ".dcm", ".jpg", ".jpeg", "")  # file extensions of images, preferred ones first
NOT_DATA = {"results", "logs"}
_NAME = re.compile(r"(?:CXR)?(?:\d+_)?((\d+)_IM-[\d-]+)((?:\.dcm)?(?:\.(?:png|jpe?g))?)", re.IGNORECASE)


class Name(NamedTuple):
    """The parts of an image's name. ``key`` (``1_IM-0001-3001``) is the same in XML, PNG, DICOM and tables. ``report``
    is the number of the report (``1``), ``ending`` the file extension."""

    key: str
    report: str
    ending: str


def parse_name(name: str) -> Name | None:
    """Parse an image's name or id (``CXR1_1_IM-0001-3001``, ``1_IM-0001-3001.dcm.png``). Return None for other text."""
    match = _NAME.fullmatch(name)
    return Name(match[1].upper(), match[2], os.path.splitext(f"x{match[3]}")[1].lower()) if match else None


def reports_folder(root: str) -> Path:
    """Return the folder of the XML reports, which is ``root`` or a folder in it. Raises UserError if there is none."""
    base = existing_folder("cohort.root", root)
    for folder in (base / REPORTS, *sorted(base.glob(f"*/{REPORTS}")), base):
        if folder.is_dir() and next(folder.glob("*.xml"), None):
            return folder
    raise UserError(
        f"cohort.root: {root!r} has no {REPORTS}/*.xml: unpack NLMCXR_reports.tgz there, or run `make openi`"
    )


def image_files(root: str) -> Iterator[tuple[Name, str]]:
    """Yield (name, path) for each file below ``root`` named like an image, but not in the folders results and logs."""
    for folder, inner, names in os.walk(root, followlinks=True):
        inner[:] = sorted(name for name in inner if name not in NOT_DATA and not name.startswith("."))
        for name in sorted(names):
            parsed = parse_name(name)
            if parsed is not None:
                yield parsed, os.path.join(folder, name)


def find_tables(root: Path, tables: str, kinds: Iterable[str], start: str = "") -> dict[str, Path]:
    """Find tables named ``<start><kind>.csv`` or ``….csv.gz`` in ``tables``, if given, and then in ``root``.

    Return {kind: path}. Raises UserError if a folder contains two tables of one kind.
    """
    path_by_kind: dict[str, Path] = {}
    folders = ([existing_folder("cohort.tables", tables)] if tables else []) + [root]
    for kind, folder in product(kinds, folders):
        matches = sorted([*folder.glob(f"{start}{kind}.csv"), *folder.glob(f"{start}{kind}.csv.gz")])
        if len(stems := sorted({path.name.removesuffix(".gz") for path in matches})) > 1:
            several = f"cohort.tables: {folder} holds {' and '.join(stems)}"
            raise UserError(f"{several}: keep only one of them, or set cohort.tables to another folder")
        if matches:
            path_by_kind.setdefault(kind, matches[0])
    return path_by_kind


def view_tables(root: str, tables: str) -> dict[str, Path]:
    """Find the tables that give the images' views in ``tables``, if given, then in ``root``; return {kind: path}.

    The two tables of torchxrayvision are used only together. Raises UserError if ``tables`` contains none of them.
    """
    path_by_kind = find_tables(existing_folder("cohort.root", root), tables, TABLE_COLUMNS)
    if not {HEADERS, CLUSTERS} <= path_by_kind.keys():
        path_by_kind = {kind: path for kind, path in path_by_kind.items() if kind == PROJECTIONS}
    if tables and not any(path.parent == Path(tables) for path in path_by_kind.values()):
        raise UserError(
            f"cohort.tables: {tables!r} holds neither {PROJECTIONS}.csv nor {HEADERS}.csv.gz with {CLUSTERS}.csv.gz: "
            "correct the path, or leave the key out to have them looked for in cohort.root"
        )
    return path_by_kind


def check_openi(options: CohortSettings) -> None:
    """Raise UserError if reports, images or, with ``unknown_view`` "exclude", the tables of views are missing."""
    reports_folder(options.root)
    if next(image_files(options.root), None) is None:
        name = "CXR1_1_IM-0001-3001.png"
        remedy = "unpack NLMCXR_png.tgz (or NLMCXR_dcm.tgz) there"
        raise UserError(f"cohort.root: {options.root!r} has no image named like {name}: {remedy}")
    if not view_tables(options.root, options.tables) and options.unknown_view == "exclude":
        raise UserError(
            "cohort.tables: no table tells which images are frontal: run `make openi` to get torchxrayvision's tables, "
            f"put {PROJECTIONS}.csv into cohort.root, or set cohort.unknown_view to accept (about one study in "
            "seven is then a lateral view; docs/getting-started/openi.md)"
        )
