"""Reading a cohort from a manifest: one table with a row per image."""

import os
import re

from cxr.base.counting import counted
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.user_tables import REMEDY, no_value, read_sheet
from cxr.dicom.files import shown
from cxr.imaging.cohort.check import ID_COLUMNS, MANIFEST_COLUMNS, REPORT_COLUMNS
from cxr.imaging.cohort.rows import IDS, Row
from cxr.imaging.cohort.split import split_name
from cxr.imaging.cohort.view import view_of_code

OPTIONAL = tuple(name for name in MANIFEST_COLUMNS if name not in ID_COLUMNS)
SEVERAL = 'put a text of several lines into quotation marks ("…")'
_SHORTENED = re.compile(r"[+-]?\d+(?:[.,]\d+)?E[+-]?\d+")
_SPREADSHEET_ERRORS = ("#NAME?", "#REF!", "#VALUE!", "#N/A", "#NUM!", "#DIV/0!", "#NULL!")


def _located(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path)) if path else ""


def _fault(cells: dict[str, str]) -> str:
    """Return a detail if a program replaced a value, so that the row cannot be used; "" if not."""
    for name, cell in cells.items():
        text = cell.strip()
        if text in _SPREADSHEET_ERRORS:
            return f"{name} holds the spreadsheet's error {text}: save the column as text"
        if name in IDS and _SHORTENED.fullmatch(text.upper()):
            return f"{name} is a number that a spreadsheet has shortened to the form 1.2E+10: save the column as text"
        if name in ID_COLUMNS and text and no_value(text):
            return f"{name} is {text!r}, which says that there is none"
    return ""


def _row(cells: dict[str, str], folder: str, line: int) -> Row:
    given = {name: cells.get(name, "") for name in MANIFEST_COLUMNS}
    told = given | {name: "" for name in OPTIONAL if no_value(given[name])}
    row = Row(
        **{name: given[name].strip() for name in IDS},
        path=_located(folder, given["image_path"].strip()),
        report_path=_located(folder, told["report_path"].strip()) or None,
        findings=told["findings"] or None,
        impression=told["impression"] or None,
        view=view_of_code(told["view"]) or "",
        acquired=told["acquired"].strip() or None,
        extra={name: value for name, value in cells.items() if name and name not in MANIFEST_COLUMNS},
        line=line,
    )
    row.told_view = told["view"].strip()
    if fault := _fault({name: given[name] for name in (*ID_COLUMNS, *REPORT_COLUMNS)}):
        row.exclude("bad_row", fault)
    if not row.path:
        row.exclude("bad_row", "image_path is empty")
    split = split_name(told["split"])
    if split is None:
        row.exclude("bad_row", f"the split {shown(told['split'])} is not one of train, validate, test")
    row.split = split or ""
    return row


def read_manifest(manifest: str) -> list[Row]:
    """Read the manifest (``check.check_inputs`` has seen its header): one :class:`Row` per line that is not blank.

    Paths are relative to the manifest's folder; returned paths are relative to the working directory, or absolute.
    Lines with too few or too many cells become excluded rows. Raises UserError if the table as a whole cannot be read
    (``user_tables``), or if no row has a usable split although the column is filled in.
    """
    folder = os.path.dirname(manifest)
    rows, strange_splits = [], 0
    sheet = read_sheet(manifest, "cohort.manifest", MANIFEST_COLUMNS, ids=IDS)
    header = sheet.header
    for line, cells in sheet.rows:
        by_name = dict(zip(header, cells, strict=False))
        if len(cells) != len(header):
            # The cells cannot be assigned to columns: even the id may be a patient's text.
            row = Row(image_id="", study_id="", subject_id="", path="", line=line)
            row.exclude("bad_row", f"{len(cells)} cells, the header has {len(header)}: {REMEDY}")
            rest = any(not cell.strip() or re.search(r"\s", cell.strip()) for cell in cells[: len(IDS)])
            if rows and rows[-1].line and len(cells) < len(header) and (rest or len(cells) < len(IDS)):
                rows[-1].exclude("bad_row", f"line {line} seems to be the rest of its text: {SEVERAL}")
        else:
            row = _row(by_name, folder, line)
        row.extra = {name: row.extra.get(name, "") for name in header if name and name not in MANIFEST_COLUMNS}
        strange_splits += split_name("" if no_value(by_name.get("split", "")) else by_name["split"]) is None
        rows.append(row)
    if strange_splits and not any(row.split for row in rows):
        raise UserError(
            f"cohort.manifest: no row of {manifest} has a split named train, validate or test "
            f"({strange_splits} have another one): rename them, or drop the column to have the split made by subject"
        )
    _share_reports(rows)
    return rows


def _share_reports(rows: list[Row]) -> None:
    """Assign a study's report to all its images if only some rows name it; warn if the rows name several."""
    studies: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.reason is None:
            studies.setdefault((row.subject_id, row.study_id), []).append(row)
    several = 0
    for images in studies.values():
        told = {report for row in images if any(report := (row.report_path, row.findings, row.impression))}
        several += len(told) > 1
        if len(told) == 1:
            for row in images:
                ((row.report_path, row.findings, row.impression),) = told
    if several:
        log.warning(
            "cohort.manifest: the rows of %s different reports: the chosen image's is used",
            counted(several, "study name", "studies name"),
        )
