"""Images that the user's own lists take out: ``cohort.exclude`` and CheXStruct's quality tables."""

import re
from collections.abc import Iterable
from pathlib import Path

from ils.cohort.check import CHEXSTRUCT_IDS, chexstruct_tables, csv_lines
from ils.cohort.rows import Row

_IMAGE_COLUMNS = ("image_id", "dicom_id", "image_file")


def read_ids(path: str) -> tuple[set[str], set[str]]:
    """Return (image ids, study ids) named by a list.

    A CSV with a column image_id, dicom_id or image_file names images, else one with study_id names studies; without
    such a header the first cell of each line is an id of either kind and is in both sets.
    """
    with csv_lines(Path(path), "cohort.exclude") as lines:
        cells = [line for line in lines if any(line)]
    header = [name.strip() for name in cells[0]] if cells else []
    column = next((header.index(name) for name in (*_IMAGE_COLUMNS, "study_id") if name in header), None)
    if column is None:
        ids = {line[0].strip() for line in cells} - {""}
        return ids, ids
    ids = {line[column].strip() for line in cells[1:] if len(line) > column} - {""}
    return (set(), ids) if header[column] == "study_id" else (ids, set())


def exclude_listed(rows: list[Row], path: str) -> int:
    """Exclude the rows that a list names; return how many of the list's ids named none.

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
        with csv_lines(path, "cohort.chexstruct") as lines:
            header = [cell.strip() for cell in next(lines)]
            place = next(header.index(column) for column in CHEXSTRUCT_IDS if column in header)
            label = header.index("label")
            for line in lines:
                if len(line) > max(place, label) and line[label].strip().lower() not in ("", "nan", "1", "1.0"):
                    image = line[place].strip()
                    failed.setdefault(image, name)
                    # The generator's column holds a file name, the published one the id.
                    failed.setdefault(re.sub(r"\.(dcm|jpe?g|png)$", "", image), name)
    return failed


def exclude_failed(rows: list[Row], folder: str, names: Iterable[str]) -> None:
    """Exclude the images that a CheXStruct table fails; an image that no table lists stays in."""
    failed = failed_images(folder, names)
    for row in rows:
        if row.image_id in failed:
            row.exclude("failed_quality_table", failed[row.image_id])
