"""Locating the files of the Indiana University collection before any job runs (standard library only)."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from cxr.base.errors import UserError, existing_folder
from cxr.imaging.cohort.settings import CohortSettings

REPORTS = "ecgen-radiology"  # the folder in which NLMCXR_reports.tgz holds its XML
PROJECTIONS, HEADERS, CLUSTERS = "indiana_projections", "nlmcxr_dicom_metadata", "nlmcxr_tsne_pa"
"""Tables that state which images are frontal: Kaggle's, and two of the package torchxrayvision."""
TABLE_COLUMNS = {
    PROJECTIONS: ("filename", "projection"),
    HEADERS: ("imageid", "View Position", "Patient Orientation"),
    CLUSTERS: ("imageid", "tsne-view"),
}
ENDINGS = (".png", ".dcm", ".jpg", ".jpeg", "")  # endings of images; of several files of one, the first is read
NOT_DATA = {"results", "logs"}
_NAME = re.compile(r"(?:CXR)?(?:\d+_)?((\d+)_IM-[\d-]+)((?:\.dcm)?(?:\.(?:png|jpe?g))?)", re.IGNORECASE)


class Name(NamedTuple):
    """The parts of an image's name; ``key`` (``1_IM-0001-3001``) is common to XML, PNG, DICOM and tables."""

    key: str
    report: str
    ending: str


def parse_name(name: str) -> Name | None:
    """Read an image's name or id (``CXR1_1_IM-0001-3001``, ``1_IM-0001-3001.dcm.png``), None for another name."""
    match = _NAME.fullmatch(name)
    return Name(match[1].upper(), match[2], os.path.splitext(f"x{match[3]}")[1].lower()) if match else None


def reports_folder(root: str) -> Path:
    """Return the folder of the XML reports: in ``root``, a folder in it, or ``root`` itself. Raises UserError."""
    base = existing_folder("cohort.root", root)
    for folder in (base / REPORTS, *sorted(base.glob(f"*/{REPORTS}")), base):
        if folder.is_dir() and next(folder.glob("*.xml"), None):
            return folder
    raise UserError(
        f"cohort.root: {root!r} has no folder {REPORTS}/ with XML: unpack NLMCXR_reports.tgz there, or run `make openi`"
    )


def image_files(root: str) -> Iterator[tuple[Name, str]]:
    """Yield (name, path) of every file below ``root`` with an image's name, except in this program's results."""
    for folder, inner, names in os.walk(root, followlinks=True):
        inner[:] = sorted(name for name in inner if name not in NOT_DATA and not name.startswith("."))
        for name in sorted(names):
            parsed = parse_name(name)
            if parsed is not None:
                yield parsed, os.path.join(folder, name)


def view_tables(root: str, tables: str) -> dict[str, Path]:
    """Return the available tables by kind; they are looked for in ``tables`` if it is given, then in ``root``.

    The two tables of torchxrayvision count only together. Raises UserError for a folder without any table.
    """
    folders = ([existing_folder("cohort.tables", tables)] if tables else []) + [existing_folder("cohort.root", root)]
    path_by_kind: dict[str, Path] = {}
    for kind in TABLE_COLUMNS:
        paths = [folder / f"{kind}.csv{ending}" for folder in folders for ending in ("", ".gz")]
        if path := next(filter(Path.is_file, paths), None):
            path_by_kind[kind] = path
    if not {HEADERS, CLUSTERS} <= path_by_kind.keys():
        path_by_kind = {kind: path for kind, path in path_by_kind.items() if kind == PROJECTIONS}
    if tables and not any(path.parent == folders[0] for path in path_by_kind.values()):
        raise UserError(
            f"cohort.tables: {tables!r} holds neither {PROJECTIONS}.csv nor {HEADERS}.csv.gz with {CLUSTERS}.csv.gz: "
            "correct the path, or leave the key out to have them looked for in cohort.root"
        )
    return path_by_kind


def check_openi(options: CohortSettings) -> None:
    """Raise UserError with one sentence if a part of the collection is missing."""
    reports_folder(options.root)
    if next(image_files(options.root), None) is None:
        raise UserError(
            f"cohort.root: below {options.root!r} is no image called like CXR1_1_IM-0001-3001.png: unpack "
            "NLMCXR_png.tgz (or NLMCXR_dcm.tgz) there (docs/getting-started/openi.md)"
        )
    if not view_tables(options.root, options.tables) and options.unknown_view == "exclude":
        raise UserError(
            "cohort.tables: no table tells which images are frontal, and the XML does not: run `make openi` for those "
            f"of torchxrayvision, put {PROJECTIONS}.csv into cohort.root, or set cohort.unknown_view to accept, by "
            "which about one study in seven is a lateral view (docs/getting-started/openi.md)"
        )
