"""A MIMIC-CXR tree, with its official tables where they are given."""

import os
import re
from collections.abc import Iterable
from concurrent.futures import Executor
from pathlib import Path

import polars as pl

from ils.cohort.check import TABLE_COLUMNS, mimic_base, mimic_tables
from ils.cohort.rows import Row
from ils.cohort.split import split_name
from ils.cohort.view import first_view
from ils.core.run import UserError

IMAGE_ENDINGS = ("", ".dcm", ".jpg", ".jpeg", ".png")
"""Endings of what counts as an image file of a study folder."""
METADATA_VIEWS = {
    "ViewPosition": "ViewPosition",
    "ViewCodeSequence_CodeMeaning": "ViewCodeSequence",
    "PerformedProcedureStepDescription": "PerformedProcedureStepDescription",
    "ProcedureCodeSequence_CodeMeaning": "StudyDescription",
}
"""Columns of the metadata table that may tell the view, and the header field each is read like."""


def _table(path: Path, kind: str) -> pl.DataFrame:
    try:
        table = pl.read_csv(path, infer_schema=False).fill_null("")
    except (pl.exceptions.PolarsError, OSError) as error:
        kind_of_error = type(error).__name__  # its text may quote a row
        raise UserError(f"cohort.tables: {path} cannot be read as CSV ({kind_of_error}): download it again") from None
    missing = [name for name in TABLE_COLUMNS[kind] if name not in table.columns]
    if missing:
        raise UserError(f"cohort.tables: {path} lacks the column {missing[0]}: download it again")
    return table.with_columns(pl.all().str.strip_chars())


def listing(folder: str) -> set[str]:
    """Return the names in a folder, empty if there is no such folder."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries}
    except OSError:
        return set()


def _folders(folder: str, pattern: str) -> list[str]:
    return [os.path.join(folder, name) for name in sorted(listing(folder)) if re.fullmatch(pattern, name)]


def _images_of(patient: str, base: str) -> list[tuple[str, str, str, str]]:
    found = []
    for study in _folders(patient, r"s\d+"):
        if os.path.isdir(study):
            ids = (os.path.basename(patient)[1:], os.path.basename(study)[1:])
            for name in sorted(listing(study)):
                stem, ending = os.path.splitext(name)
                if ending.lower() in IMAGE_ENDINGS and not name.startswith("."):
                    found.append((*ids, stem, os.path.relpath(os.path.join(study, name), base)))
    return found


def walk(base: str, pool: Executor) -> Iterable[tuple[str, str, str, str]]:
    """Yield (subject_id, study_id, dicom_id, path below ``base``) of every image of the tree, in order of path."""
    patients = [
        patient for group in _folders(os.path.join(base, "files"), r"p\d+") for patient in _folders(group, r"p\d+")
    ]
    for images in pool.map(lambda patient: _images_of(patient, base), patients):
        yield from images


def acquired_at(date: str, time: str) -> str | None:
    """Return ``YYYYMMDDHHMMSS.ffffff`` from the table's date and time (a number, so without leading zeros)."""
    if not re.fullmatch(r"\d{8}", date):
        return None
    whole, _, fraction = time.partition(".")
    if not re.fullmatch(r"\d{1,6}", whole):
        return date
    return f"{date}{whole:0>6}.{fraction[:6]:0<6}"


def _apply_metadata(row: Row, cells: dict[str, str]) -> None:
    view, _ = first_view((field, cells.get(column, "").upper()) for column, field in METADATA_VIEWS.items())
    row.view = view or ""
    row.acquired = acquired_at(cells.get("StudyDate", ""), cells.get("StudyTime", ""))
    sides = (cells.get("Rows", ""), cells.get("Columns", ""))
    if all(side.isdecimal() for side in sides):
        row.size = (int(sides[0]), int(sides[1]))


def _missing(rows: list[Row], pool: Executor) -> None:
    folders = sorted({os.path.dirname(row.path) for row in rows})
    names = dict(zip(folders, pool.map(listing, folders), strict=True))
    for row in rows:
        folder, name = os.path.split(row.path)
        if name not in names[folder]:
            row.exclude("missing_file")


def _reports(rows: list[Row], pool: Executor) -> None:
    patients = sorted({os.path.dirname(os.path.dirname(row.path)) for row in rows})
    names = dict(zip(patients, pool.map(listing, patients), strict=True))
    for row in rows:
        patient, study = os.path.split(os.path.dirname(row.path))
        if f"{study}.txt" in names[patient]:
            row.report_path = os.path.join(patient, f"{study}.txt")


def read_mimic(root: str, tables: str, pool: Executor) -> list[Row]:
    """Read the tree: one :class:`Row` per image of the record list, or per image file if there is no such list.

    Only folders are listed, no image is opened. Reports are looked for at ``files/p10/p10000032/s50414267.txt``.
    Raises UserError if a table cannot be used.
    """
    base = str(mimic_base(root))
    given = {kind: _table(path, kind) for kind, path in mimic_tables(root, tables).items()}
    if "record-list" in given:
        listed = given["record-list"].select(TABLE_COLUMNS["record-list"]).iter_rows()
    else:
        listed = walk(base, pool)
    rows = [
        Row(image_id=image, study_id=study, subject_id=subject, path=os.path.normpath(os.path.join(base, path)))
        for subject, study, image, path in listed
    ]
    if not rows:
        raise UserError(
            f"cohort.root: no image below {base}/files: set it to the folder that holds files/p10/p10000032/…"
        )
    if "metadata" in given:
        by_id = {cells["dicom_id"]: cells for cells in given["metadata"].iter_rows(named=True)}
        for row in rows:
            if row.image_id in by_id:
                _apply_metadata(row, by_id[row.image_id])
    if "split" in given:
        splits = dict(given["split"].select("dicom_id", "split").iter_rows())
        for row in rows:
            split = split_name(splits.get(row.image_id, ""))
            if split is None:
                row.exclude("bad_row", "the split is none of train, validate, test")
            row.split = split or ""
    for row in rows:
        if not row.path.startswith(os.path.join(os.path.normpath(base), "files", "")):
            row.exclude("bad_row", "the path is not below files/")
    _missing(rows, pool)
    _reports(rows, pool)
    return rows
