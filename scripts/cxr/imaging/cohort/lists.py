"""Excluding images by the user's lists: ``cohort.exclude`` and CheXStruct's quality tables."""

import re
from collections.abc import Iterable

from cxr.base.user_tables import read_sheet
from cxr.imaging.cohort.check import CHEXSTRUCT_COLUMNS, CHEXSTRUCT_IDS, EXCLUDE_COLUMNS, chexstruct_tables
from cxr.imaging.cohort.rows import Row


def read_ids(path: str) -> tuple[set[str], set[str]]:
    """Return (image ids, study ids) named by a list.

    A CSV with a column image_id, dicom_id or image_file names images; otherwise one with study_id names studies.
    Without such a header, the first cell of each line may be either kind of id and goes into both sets.
    """
    names = EXCLUDE_COLUMNS
    sheet = read_sheet(path, "cohort.exclude", names, ids=names, words=names, headless=True)
    column = next((name for name in names if name in sheet.header), None)
    if column is None:
        ids = {cells[0] for _, cells in sheet.rows} - {""}
        return ids, ids
    ids = {cells[sheet.header.index(column)] for _, cells in sheet.checked()} - {""}
    return (set(), ids) if column == "study_id" else (ids, set())


def exclude_listed(rows: list[Row], path: str) -> int:
    """Exclude the rows that a list names; return how many of the list's ids match no row.

    Study ids match with and without MIMIC's leading "s".
    """
    images, studies = read_ids(path)
    used = set()
    for row in rows:
        hits = (images & {row.image_id}) | (studies & {row.study_id, f"s{row.study_id}"})
        if hits:
            used |= hits
            row.exclude("listed")
    return len((images | studies) - used)


def failed_images(folder: str, names: Iterable[str]) -> dict[str, str]:
    """Return {image id: the first CheXStruct table that fails it} (label other than 1; an empty label passes)."""
    failed: dict[str, str] = {}
    for name, path in chexstruct_tables(folder, list(names)).items():
        sheet = read_sheet(path, "cohort.chexstruct", CHEXSTRUCT_COLUMNS, ids=CHEXSTRUCT_IDS, words=CHEXSTRUCT_IDS)
        place = next(sheet.header.index(column) for column in CHEXSTRUCT_IDS if column in sheet.header)
        label = sheet.header.index("label")
        for _, cells in sheet.checked():
            if cells[label].strip().lower() not in ("", "nan", "1", "1.0"):
                image = cells[place]
                failed.setdefault(image, name)
                # The column holds a file name in the generator's tables, the id in the published ones.
                failed.setdefault(re.sub(r"\.(dcm|jpe?g|png)$", "", image), name)
    return failed


def exclude_failed(rows: list[Row], folder: str, names: Iterable[str]) -> None:
    """Exclude the images that a CheXStruct table fails; an image that no table lists is kept."""
    failed = failed_images(folder, names)
    for row in rows:
        if row.image_id in failed:
            row.exclude("failed_quality_table", failed[row.image_id])
