"""Any cohort as one CSV: a row per image."""

import os
from pathlib import Path

from ils.cohort.check import ID_COLUMNS, csv_lines
from ils.cohort.rows import Row
from ils.cohort.split import split_name
from ils.cohort.view import view_of_code
from ils.core.run import UserError

KNOWN = (*ID_COLUMNS, "report_path", "findings", "impression", "view", "split", "acquired")


def _located(folder: str, path: str) -> str:
    return os.path.normpath(os.path.join(folder, path)) if path else ""


def _row(cells: dict[str, str], folder: str) -> Row:
    row = Row(
        **{name: cells.get(name, "").strip() for name in ("image_id", "study_id", "subject_id")},
        path=_located(folder, cells.get("image_path", "").strip()),
        report_path=_located(folder, cells.get("report_path", "").strip()) or None,
        findings=cells.get("findings") or None,
        impression=cells.get("impression") or None,
        view=view_of_code(cells.get("view", "")) or "",
        acquired=cells.get("acquired", "").strip() or None,
        extra={name: value for name, value in cells.items() if name not in KNOWN},
    )
    if not row.path:
        row.exclude("bad_row", "no image_path")
    split = split_name(cells.get("split", ""))
    if split is None:
        row.exclude("bad_row", "the split is none of train, validate, test")
    row.split = split or ""
    return row


def read_manifest(manifest: str) -> list[Row]:
    """Read the manifest (``check.check_inputs`` has seen its header): one :class:`Row` per line that is not blank.

    Paths are relative to the manifest's folder and come back relative to the working directory, or absolute. Lines
    with too few or too many cells are kept as excluded rows. Raises UserError if no row has a usable split although
    the column is filled in.
    """
    folder = os.path.dirname(manifest)
    rows, strange_splits = [], 0
    with csv_lines(Path(manifest), "cohort.manifest") as lines:
        header = [name.strip() for name in next(lines)]
        for cells in lines:
            if not any(cells):
                continue
            row = _row(dict(zip(header, cells, strict=False)), folder)
            row.extra = {name: row.extra.get(name, "") for name in header if name and name not in KNOWN}
            if len(cells) != len(header):
                row.exclude("bad_row", f"{len(cells)} cells, the header has {len(header)}")
            strange_splits += split_name(dict(zip(header, cells, strict=False)).get("split", "")) is None
            rows.append(row)
    if strange_splits and not any(row.split for row in rows):
        raise UserError(
            f"cohort.manifest: no row of {manifest} has a split named train, validate or test "
            f"({strange_splits} have another one): rename them, or drop the column to have the split made by subject"
        )
    return rows
