"""Reading a cohort from a manifest, a table with one row per image."""

import os
import re
from collections import defaultdict
from concurrent.futures import Executor
from functools import partial

from cxr.base.errors import UserError, count_phrase
from cxr.base.ids import AS_TEXT, id_fault, spreadsheet_error
from cxr.base.jobs import log
from cxr.base.user_paths import PathFinder
from cxr.base.user_tables import REMEDY, is_no_value, listed_lines, read_sheet
from cxr.dicom.files import quote_value
from cxr.imaging.cohort.check import ID_COLUMNS, MANIFEST_COLUMNS, REPORT_COLUMNS
from cxr.imaging.cohort.dates import sortable_times
from cxr.imaging.cohort.rows import IDS, Row, group_rows, in_batches
from cxr.imaging.cohort.split import split_name
from cxr.imaging.cohort.view import parse_view_code

OPTIONAL = tuple(name for name in MANIFEST_COLUMNS if name not in ID_COLUMNS)
SEVERAL = 'put a text of several lines into quotation marks ("…")'
MOST_LETTERS = 32_767  # maximum number of characters in a cell of Excel, which truncates longer texts


def _fault(cells: dict[str, str]) -> str:
    """Return the first fault in ``cells``, {column: text} of a row, such as a text that Excel truncated; "" if none."""
    for name, cell in cells.items():
        text = cell.strip()
        if name in IDS and (fault := id_fault(text)):
            return f"{name} {fault}"
        if error := spreadsheet_error(text):
            return f"{name} holds the spreadsheet's error {error}: {AS_TEXT}"
        if name in ID_COLUMNS and text and is_no_value(text):
            return f"{name} is {text!r}, which stands for a missing value: enter the {name}"
        if len(cell) == MOST_LETTERS:
            return f"{name} has exactly 32,767 characters, the limit of Excel: give the full text in report_path"
    return ""


def _row(cells: dict[str, str], line: int) -> Row:
    written = {name: cells.get(name, "") for name in MANIFEST_COLUMNS}
    values = written | {name: "" for name in OPTIONAL if is_no_value(written[name])}
    row = Row(*(written[name].strip() for name in (*IDS, "image_path")), line=line)
    row.findings, row.impression = values["findings"] or None, values["impression"] or None
    row.report_path, row.acquired = values["report_path"].strip() or None, values["acquired"].strip() or None
    row.view, row.view_text = parse_view_code(values["view"]) or "", values["view"].strip()
    row.extra = {name: value for name, value in cells.items() if name and name not in MANIFEST_COLUMNS}
    if fault := _fault({name: written[name] for name in (*ID_COLUMNS, *REPORT_COLUMNS, "acquired")}):
        row.exclude("bad_row", fault)
    if not row.path:
        row.exclude("bad_row", "image_path is empty")
    split = split_name(values["split"])
    if split is None:
        row.exclude("bad_row", f"the split {quote_value(values['split'])} is not one of train, validate, test")
    row.split = split or ""
    return row


def read_manifest(manifest: str, pool: Executor, *, check_files: bool = True) -> list[Row]:
    """Read the manifest, whose header ``check.check_inputs`` has checked; return a :class:`Row` per non-blank line.

    Paths in the manifest are relative to its folder. With ``check_files``, returned paths are relative to the working
    directory, otherwise they are unchanged. A line with too few or too many cells becomes an excluded row. Raises
    UserError if the table cannot be read, or if its split column names neither train, validate nor test.
    """
    rows, strange_splits = [], 0
    sheet = read_sheet(manifest, "cohort.manifest", MANIFEST_COLUMNS, ids=IDS, words=IDS)
    header = sheet.header
    for line, cells in sheet.rows:
        by_name = dict(zip(header, cells, strict=False))
        if len(cells) != len(header):
            # The cells cannot be assigned to columns; even the first cell may be patient text.
            row = Row("", "", "", "", line=line)
            row.exclude("bad_row", f"{len(cells)} cells, the header has {len(header)}: {REMEDY}")
            is_prose = any(not cell.strip() or re.search(r"\s", cell.strip()) for cell in cells[: len(IDS)])
            if rows and rows[-1].line and len(cells) < len(header) and (is_prose or len(cells) < len(IDS)):
                rows[-1].exclude("bad_row", f"its text seems to continue in line {line}: {SEVERAL}")
        else:
            row = _row(by_name, line)
        row.extra = {name: row.extra.get(name, "") for name in header if name and name not in MANIFEST_COLUMNS}
        strange_splits += split_name("" if is_no_value(by_name.get("split", "")) else by_name["split"]) is None
        rows.append(row)
    if strange_splits and not any(row.split for row in rows):
        raise UserError(
            f"cohort.manifest: no row of {manifest} has a split named train, validate or test "
            f"({strange_splits} have another name): rename them, or drop the column to split by subject automatically"
        )
    timed = {row.line: row for row in rows if row.acquired}
    times, lines = sortable_times({line: row.acquired for line, row in timed.items()}, "cohort.manifest: acquired")
    for line in lines:
        timed[line].exclude("bad_row", "acquired is not a date in the format of the other rows: use the same format")
    for line, time in times.items():
        timed[line].acquired = time
    if check_files:
        _place_files(rows, manifest, pool)
    _share_reports(rows)
    _drop_missing_reports(rows)
    return rows


def look_for_files(rows: list[Row], manifest: str, pool: Executor) -> None:
    """Replace the manifest's paths by paths of existing files, warn if the spelling differs, record missing reports."""
    _place_files(rows, manifest, pool)
    _drop_missing_reports(rows)


def _drop_missing_reports(rows: list[Row]) -> None:
    for row in rows:
        if row.report_missing and row.report_path:
            row.expected_report, row.report_path = row.report_path, None


def _place_files(rows: list[Row], manifest: str, pool: Executor) -> None:
    finder = PathFinder(os.path.dirname(manifest))
    for column, field in (("image_path", "path"), ("report_path", "report_path")):
        rows_with_path = [row for row in rows if getattr(row, field)]
        files = finder.find_all((getattr(row, field) for row in rows_with_path), partial(in_batches, pool))
        lines_by_note: dict[str, list[int]] = defaultdict(list)
        for row in rows_with_path:
            file = files[getattr(row, field)]
            setattr(row, field, file.path)
            if file.differences:
                note = f"differs from its file in {', '.join(file.differences)}, and that file is used"
                lines_by_note[note].append(row.line)
            elif field == "path":
                row.path_problem = file.problem
            elif file.problem:
                lines_by_note[f"points to no file: {file.problem}"].append(row.line)
        for note, numbers in lines_by_note.items():
            log.warning("cohort.manifest: %s of %s %s", column, listed_lines(numbers), note)
    reports = list(dict.fromkeys(row.report_path for row in rows if row.report_path))
    exists = dict(zip(reports, in_batches(pool, os.path.isfile, reports), strict=True))
    for row in rows:
        row.report_missing = row.report_path is not None and not exists[row.report_path]


def _share_reports(rows: list[Row]) -> None:
    """Assign a study's report to all images of the study. If its rows name different reports, only warn."""
    several = 0
    for images in group_rows((row for row in rows if row.reason is None), "subject_id", "study_id").values():
        with_report = [row for row in images if row.report_path or row.findings or row.impression]
        reports = {(row.report_path, row.findings, row.impression, row.report_missing) for row in with_report}
        several += len(reports) > 1
        if len(reports) == 1:
            for row in images:
                ((row.report_path, row.findings, row.impression, row.report_missing),) = reports
    if several:
        whose = count_phrase(several, "study name", "studies name")
        log.warning("cohort.manifest: the rows of %s different reports: the selected image's report is used", whose)
