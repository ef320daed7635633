"""Cheap checks of the user's paths and tables, called before any job is planned (standard library only)."""

import os
from pathlib import Path

from cxr.base.errors import UserError, existing_file, existing_folder
from cxr.base.user_tables import read_sheet, require_columns
from cxr.imaging.cohort.openi_files import check_openi, find_tables, view_tables
from cxr.imaging.cohort.settings import CohortSettings

ID_COLUMNS = ("subject_id", "study_id", "image_id", "image_path")
REPORT_COLUMNS = ("report_path", "findings", "impression")
MANIFEST_COLUMNS = (*ID_COLUMNS, *REPORT_COLUMNS, "view", "split", "acquired")
TABLE_COLUMNS = {
    "record-list": ("subject_id", "study_id", "dicom_id", "path"),
    "metadata": ("dicom_id",),
    "split": ("dicom_id", "split"),
}
"""The official tables by the end of their name, and their required columns."""
TABLE_IDS = ("dicom_id",)

CHEXSTRUCT_TABLES = ("mask_number", "abdominal_xray", "window", "inclusion")
"""CheXStruct tables that an image must pass; the paper names the first, and full visibility (D.1)."""
CHEXSTRUCT_NAMES = {"abdomial_xray": "abdominal_xray"}  # {file stem under which a table was published, too: its name}
CHEXSTRUCT_IDS = ("image_id", "image_file", "dicom_id")
EXCLUDE_COLUMNS = ("image_id", "dicom_id", "image_file", "study_id")
CHEXSTRUCT_COLUMNS = (*CHEXSTRUCT_IDS, "label")


def read_columns(path: Path, key: str, names: tuple[str, ...], words: tuple[str, ...] = ()) -> list[str]:
    """Return the column names of a table that must have at least one row; see ``read_sheet``. Raises UserError."""
    sheet = read_sheet(path, key, names, words=words, head=True)
    if next(sheet.rows, None) is None:
        raise UserError(f"{key}: {path} has no rows: put a header and at least one row into it")
    return sheet.header


def mimic_base(root: str) -> Path:
    """Return the folder that holds ``files/`` (``root`` itself, or its parent if ``root`` is ``files``)."""
    folder = existing_folder("cohort.root", root)
    return folder.parent if folder.name == "files" and not (folder / "files").is_dir() else folder


def mimic_tables(root: str, tables: str) -> dict[str, Path]:
    """Return the official tables present, by kind (``record-list``, ``metadata``, ``split``).

    They are looked for in ``tables``, if given, then in ``root``. UserError for two matches, or none in ``tables``.
    """
    path_by_kind = find_tables(mimic_base(root), tables, TABLE_COLUMNS, "*-")
    if tables and not any(path.parent == Path(tables) for path in path_by_kind.values()):
        names = ", ".join(f"*-{kind}.csv" for kind in TABLE_COLUMNS)
        raise UserError(f"cohort.tables: {tables} holds none of {names}: correct the path, or leave the key out")
    return path_by_kind


def chexstruct_tables(folder: str) -> dict[str, Path]:
    """Return the tables of :data:`CHEXSTRUCT_TABLES` anywhere under ``folder``. Raises UserError without one."""
    root = existing_folder("cohort.chexstruct", folder)
    files = {CHEXSTRUCT_NAMES.get(path.stem, path.stem): path for path in sorted(root.rglob("*.csv"))}
    if not files.keys() & set(CHEXSTRUCT_TABLES):
        raise UserError(f"cohort.chexstruct: {root} holds no {', '.join(CHEXSTRUCT_TABLES)}.csv: add one")
    return {name: files[name] for name in CHEXSTRUCT_TABLES if name in files}


def _check_mimic(options: CohortSettings) -> None:
    base = mimic_base(options.root)
    tables = mimic_tables(options.root, options.tables)
    if not (base / "files").is_dir():
        raise UserError(f"cohort.root: {options.root!r} has no folder files/: give the folder that holds files/p10/…")
    for kind, path in tables.items():
        require_columns(read_columns(path, "cohort.tables", (), TABLE_IDS), TABLE_COLUMNS[kind], path, "cohort.tables")
    if "record-list" not in tables and not any(entry.is_dir() for entry in os.scandir(base / "files")):
        raise UserError(f"cohort.root: {base / 'files'} is empty: set it to the folder that holds files/p10/…")


def _check_manifest(options: CohortSettings) -> None:
    path = existing_file("cohort.manifest", options.manifest)
    header = read_columns(path, "cohort.manifest", MANIFEST_COLUMNS, ID_COLUMNS[:3])
    require_columns(header, ID_COLUMNS, path, "cohort.manifest")
    if not set(REPORT_COLUMNS) & set(header):
        raise UserError(f"cohort.manifest: {path} has no {' or '.join(REPORT_COLUMNS)}: add one (cells may be empty)")


def source_files(options: CohortSettings) -> dict[str, str | list[str]]:
    """Return the files that the cohort is read from (names of rule inputs): a change in one re-runs the cohort.

    Images and reports are not among them. A tree without tables has none: use ``--forcerun`` there.
    """
    files: dict[str, str | list[str]] = {}
    if options.source in ("mimic", "openi"):
        list_tables = mimic_tables if options.source == "mimic" else view_tables
        files["tables"] = [str(path) for path in list_tables(options.root, options.tables).values()]
    else:
        files["manifest"] = options.manifest
    if options.exclude:
        files["exclude"] = options.exclude
    if options.chexstruct:
        files["chexstruct"] = [str(path) for path in chexstruct_tables(options.chexstruct).values()]
    return files


def check_inputs(options: CohortSettings) -> None:
    """Raise UserError if the settings name a missing file or folder; only the first rows of tables are read."""
    {"mimic": _check_mimic, "openi": check_openi}.get(options.source, _check_manifest)(options)
    check_lists(options)


def check_lists(options: CohortSettings) -> None:
    """Raise UserError with one sentence if a list of images to exclude is missing or lacks a column."""
    if options.exclude:
        path = existing_file("cohort.exclude", options.exclude)
        read_sheet(path, "cohort.exclude", EXCLUDE_COLUMNS, words=EXCLUDE_COLUMNS, head=True, headless=True)
    if options.chexstruct:
        for path in chexstruct_tables(options.chexstruct).values():
            header = read_columns(path, "cohort.chexstruct", CHEXSTRUCT_COLUMNS, CHEXSTRUCT_IDS)
            require_columns(header, ("label",), path, "cohort.chexstruct")
            if not set(CHEXSTRUCT_IDS) & set(header):
                require_columns(header, ("image_id",), path, "cohort.chexstruct")
