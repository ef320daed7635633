"""Reading a cohort from a MIMIC-CXR folder tree and, if given, its official tables."""

import os
import re
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path

import polars as pl

from cxr.base.errors import UserError
from cxr.base.user_tables import read_frame, require_columns
from cxr.dicom.files import rejection_of
from cxr.imaging.cohort.check import TABLE_COLUMNS, mimic_base, mimic_tables
from cxr.imaging.cohort.rows import Row, in_batches
from cxr.imaging.cohort.split import split_name
from cxr.imaging.cohort.view import first_view

IMAGE_ENDINGS = ("", ".dcm", ".jpg", ".jpeg", ".png")  # file extensions of images in a study folder
METADATA_VIEWS = {
    "ViewPosition": "ViewPosition",
    "ViewCodeSequence_CodeMeaning": "ViewCodeSequence",
    "PerformedProcedureStepDescription": "PerformedProcedureStepDescription",
    "ProcedureCodeSequence_CodeMeaning": "StudyDescription",
}
"""{column of the metadata table that may contain the view: DICOM header field whose rules are used to parse it}."""
_SIZE_AND_TIME = ("Rows", "Columns", "StudyDate", "StudyTime")
_IDS = ("subject_id", "study_id", "dicom_id")
_LISTED = TABLE_COLUMNS["record-list"]


def _table(path: Path, kind: str) -> pl.DataFrame:
    table = read_frame(path, "cohort.tables", TABLE_COLUMNS[kind], ids=_IDS)
    require_columns(table.columns, TABLE_COLUMNS[kind], path, "cohort.tables", "download it again")
    return table.with_columns(pl.all().str.strip_chars())


def list_names(folder: str) -> set[str]:
    """Return the names in a folder, or an empty set if it does not exist. Raises OSError if it cannot be read."""
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _try_list_names(folder: str) -> tuple[set[str], str]:
    """Return the names in a folder, and why it cannot be read ("" if it can). Raises OSError if the machine fails."""
    try:
        return list_names(folder), ""
    except OSError as error:
        return set(), rejection_of(error).detail


def _folders(folder: str, pattern: str) -> list[str]:
    return [os.path.join(folder, name) for name in sorted(list_names(folder)) if re.fullmatch(pattern, name)]


def _list_images(patient: str, base: str) -> list[tuple[str, str, str, str]]:
    image_rows = []
    for study in filter(os.path.isdir, _folders(patient, r"s\d+")):
        ids = (os.path.basename(patient)[1:], os.path.basename(study)[1:])
        for name in sorted(list_names(study)):
            stem, ending = os.path.splitext(name)
            if ending.lower() in IMAGE_ENDINGS and not name.startswith("."):
                image_rows.append((*ids, stem, os.path.relpath(os.path.join(study, name), base)))
    return image_rows


def walk_images(base: str, pool: Executor) -> Iterable[tuple[str, str, str, str]]:
    """Yield (subject_id, study_id, dicom_id, path relative to ``base``) for each image of the tree, sorted by path."""
    groups = _folders(os.path.join(base, "files"), r"p\d+")
    patients = [patient for group in groups for patient in _folders(group, r"p\d+")]
    try:
        for images in in_batches(pool, lambda patient: _list_images(patient, base), patients):
            yield from images
    except PermissionError:
        raise UserError(
            f"cohort.root: no permission to read a folder below {base}/files: get the permission, or give the "
            "record list in cohort.tables; the images of the folder are then excluded with this reason"
        ) from None


def acquired_at(date: str, time: str) -> str | None:
    """Convert YYYYMMDD and HHMMSS, which may lack leading zeros, to ``YYYYMMDDHHMMSS.ffffff``; None without a date."""
    if not re.fullmatch(r"\d{8}", date):
        return None
    clock, _, fraction = time.partition(".")
    if not re.fullmatch(r"\d{1,6}", clock):
        return date
    return f"{date}{clock:0>6}.{fraction[:6]:0<6}"


def _views(metadata: pl.DataFrame) -> pl.DataFrame:
    """Add a column ``view`` to the metadata, "" if unknown. Each combination of cells is parsed only once."""
    columns = [column for column in METADATA_VIEWS if column in metadata.columns]
    if not columns:
        return metadata.with_columns(view=pl.lit(""))
    kinds = metadata.select(columns).unique()
    views = [
        first_view((METADATA_VIEWS[column], cell.upper()) for column, cell in zip(columns, cells, strict=True))[0] or ""
        for cells in kinds.iter_rows()
    ]
    return metadata.join(kinds.with_columns(view=pl.Series(views, dtype=pl.String)), on=columns, how="left")


def _with_tables(listed: pl.DataFrame, table_by_kind: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """Add the columns view, Rows, Columns, StudyDate, StudyTime and split to the listed images, "" if unknown."""
    for kind, columns in (("metadata", ("view", *_SIZE_AND_TIME)), ("split", ("split",))):
        if kind in table_by_kind:
            table = _views(table_by_kind[kind]) if kind == "metadata" else table_by_kind[kind]
            table = table.select("dicom_id", *(name for name in columns if name in table.columns))
            table = table.unique("dicom_id", keep="last")
            listed = listed.join(table, on="dicom_id", how="left", maintain_order="left")
        listed = listed.with_columns(pl.lit("").alias(name) for name in columns if name not in listed.columns)
    return listed.fill_null("")


def _row(base: str, cells: dict[str, str]) -> Row:
    path, sides = os.path.normpath(os.path.join(base, cells["path"])), (cells["Rows"], cells["Columns"])
    row = Row(cells["dicom_id"], cells["study_id"], cells["subject_id"], path, view=cells["view"])
    row.acquired = acquired_at(cells["StudyDate"], cells["StudyTime"])
    if all(side.isdecimal() for side in sides):
        row.size = (int(sides[0]), int(sides[1]))
    split = split_name(cells["split"])
    if split is None:
        row.exclude("bad_row", "the split is not one of train, validate, test")
    row.split = split or ""
    if not row.path.startswith(os.path.join(os.path.normpath(base), "files", "")):
        row.exclude("bad_row", "the path in the record list is not below files/")
    return row


def look_for_files(rows: list[Row], pool: Executor, base: str = "", reports: str = "") -> None:
    """Exclude rows whose image is missing, and record which reports exist. Each folder is listed once.

    ``base``: root folder of the images; ``reports``: root folder of the reports, by default ``base``.
    """
    studies: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        studies[os.path.dirname(row.path)].append(row)
    report_paths = {study: f"{study}.txt" for study in studies}
    if reports:
        report_paths = {
            study: os.path.join(reports, os.path.relpath(path, base)) for study, path in report_paths.items()
        }
    folders = list(dict.fromkeys([*studies, *map(os.path.dirname, report_paths.values())]))
    listings = dict(zip(folders, in_batches(pool, _try_list_names, folders), strict=True))
    for study, images in studies.items():
        (names, why), report = listings[study], report_paths[study]
        for row in images:
            if why:
                row.exclude("unreadable_file", f"its folder cannot be read: {why}")
            elif os.path.basename(row.path) not in names:
                row.exclude("missing_file")
            row.expected_report = report
            row.report_missing = os.path.basename(report) not in listings[os.path.dirname(report)][0]
            row.report_path = None if row.report_missing else report


def read_mimic(root: str, tables: str, pool: Executor, *, check_files: bool = True, reports: str = "") -> list[Row]:
    """Read the folder tree. Return a :class:`Row` per image of the record list, or per image file if there is no list.

    With ``check_files``, folders are listed to find missing files; no image is opened. Reports are expected at paths
    such as ``files/p10/p10000032/s50414267.txt`` below ``reports``, by default ``root``. Raises UserError if a
    table lacks a column.
    """
    base = str(mimic_base(root))
    table_by_kind = {kind: _table(path, kind) for kind, path in mimic_tables(root, tables).items()}
    if "record-list" in table_by_kind:
        listed = table_by_kind["record-list"].select(_LISTED)
    else:
        listed = pl.DataFrame(list(walk_images(base, pool)), schema=dict.fromkeys(_LISTED, pl.String), orient="row")
    if listed.is_empty():
        raise UserError(f"cohort.root: no image below {base}/files: give the folder that holds files/p10/p10000032/…")
    rows = [_row(base, cells) for cells in _with_tables(listed, table_by_kind).iter_rows(named=True)]
    if check_files:
        look_for_files(rows, pool, base, str(mimic_base(reports)) if reports else "")
    return rows
