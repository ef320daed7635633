"""Quick checks that the user's paths and tables exist and have their columns, before any job is planned."""

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
"""{end of the name of an official MIMIC-CXR table: its required columns}."""
TABLE_IDS = ("dicom_id",)

CHEXSTRUCT_TABLES = ("mask_number", "abdominal_xray", "window", "inclusion")
"""CheXStruct tables, one per check of an image. The paper (D.1) requires ``mask_number`` and a fully visible chest."""
CHEXSTRUCT_NAMES = {"abdomial_xray": "abdominal_xray"}  # {misspelt file stem of a published table: its name}
CHEXSTRUCT_IDS = ("image_id", "image_file", "dicom_id")
EXCLUDE_COLUMNS = ("image_id", "dicom_id", "image_file", "study_id")
CHEXSTRUCT_COLUMNS = (*CHEXSTRUCT_IDS, "label")


def read_columns(path: Path, key: str, names: tuple[str, ...], words: tuple[str, ...] = ()) -> list[str]:
    """Return the column names of a table. Arguments: as in ``read_sheet``. Raises UserError if the table has no row."""
    sheet = read_sheet(path, key, names, words=words, head=True)
    if next(sheet.rows, None) is None:
        raise UserError(f"{key}: {path} has no rows: put a header and at least one row into it")
    return sheet.header


def mimic_base(root: str) -> Path:
    """Return the folder that contains ``files/``: ``root``, or its parent if ``root`` is the folder ``files``."""
    folder = existing_folder("cohort.root", root)
    return folder.parent if folder.name == "files" and not (folder / "files").is_dir() else folder


def mimic_tables(root: str, tables: str) -> dict[str, Path]:
    """Find the official MIMIC-CXR tables; return {kind: path}. Kinds are ``record-list``, ``metadata`` and ``split``.

    Looks into ``tables``, if given, then ``root``. Raises UserError for two tables of a kind, or none in ``tables``.
    """
    path_by_kind = find_tables(mimic_base(root), tables, TABLE_COLUMNS, "*-")
    if tables and not any(path.parent == Path(tables) for path in path_by_kind.values()):
        names = ", ".join(f"*-{kind}.csv" for kind in TABLE_COLUMNS)
        raise UserError(f"cohort.tables: {tables} holds none of {names}: correct the path, or leave the key out")
    return path_by_kind


def chexstruct_tables(folder: str) -> dict[str, Path]:
    """Return {name: path} of the CheXStruct tables in and below ``folder``. Raises UserError if there is none."""
    root = existing_folder("cohort.chexstruct", folder)
    files = {CHEXSTRUCT_NAMES.get(path.stem, path.stem): path for path in sorted(root.rglob("*.csv"))}
    if not files.keys() & set(CHEXSTRUCT_TABLES):
        raise UserError(f"cohort.chexstruct: {root} has none of the CSVs {', '.join(CHEXSTRUCT_TABLES)}: add one")
    return {name: files[name] for name in CHEXSTRUCT_TABLES if name in files}


def _check_mimic(options: CohortSettings) -> None:
    base = mimic_base(options.root)
    tables = mimic_tables(options.root, options.tables)
    if not (base / "files").is_dir():
        raise UserError(f"cohort.root: {options.root!r} has no folder files/: give the folder that holds files/p10/…")
    for kind, path in tables.items():
        require_columns(read_columns(path, "cohort.tables", (), TABLE_IDS), TABLE_COLUMNS[kind], path, "cohort.tables")
    if "record-list" not in tables and not any(entry.is_dir() for entry in os.scandir(base / "files")):
        raise UserError(f"cohort.root: {base / 'files'} is empty: give the folder that holds files/p10/…")


def _check_manifest(options: CohortSettings) -> None:
    path = existing_file("cohort.manifest", options.manifest)
    header = read_columns(path, "cohort.manifest", MANIFEST_COLUMNS, ID_COLUMNS[:3])
    require_columns(header, ID_COLUMNS, path, "cohort.manifest")
    if not set(REPORT_COLUMNS) & set(header):
        raise UserError(f"cohort.manifest: {path} has no column {' or '.join(REPORT_COLUMNS)}: add one, even if empty")


def source_files(options: CohortSettings) -> dict[str, str | list[str]]:
    """Return {input of the cohort rule: paths of tables and lists} for the files from which the cohort is read.

    A change of these files reruns the cohort. Images and reports are not included. For a MIMIC-CXR folder without
    tables, the result has no ``tables``, so use ``--forcerun`` after a change of the folder.
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
    """Raise UserError if a file, folder or column that the settings need is missing. Reads only the start of tables."""
    {"mimic": _check_mimic, "openi": check_openi}.get(options.source, _check_manifest)(options)
    check_lists(options)


def check_lists(options: CohortSettings) -> None:
    """Raise UserError if a list of images to exclude, or a CheXStruct table, is missing or lacks a column."""
    if options.exclude:
        path = existing_file("cohort.exclude", options.exclude)
        read_sheet(path, "cohort.exclude", EXCLUDE_COLUMNS, words=EXCLUDE_COLUMNS, head=True, headless=True)
    if options.chexstruct:
        for path in chexstruct_tables(options.chexstruct).values():
            header = read_columns(path, "cohort.chexstruct", CHEXSTRUCT_COLUMNS, CHEXSTRUCT_IDS)
            require_columns(header, ("label",), path, "cohort.chexstruct")
            if not set(CHEXSTRUCT_IDS) & set(header):
                require_columns(header, ("image_id",), path, "cohort.chexstruct")
