"""Rows of the cohort stage, one per input image: operations and checks on rows, and the columns of the tables."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.base.errors import count_phrase
from cxr.base.jobs import log
from cxr.base.user_tables import listed_lines, read_sheet
from cxr.imaging.cohort.check import CHEXSTRUCT_COLUMNS, CHEXSTRUCT_IDS, EXCLUDE_COLUMNS, chexstruct_tables

T = TypeVar("T")
R = TypeVar("R")
IDS = ("image_id", "study_id", "subject_id")
_UNUSABLE = re.compile(r"[\x00-\x1f\x7f/\\]")
LONGEST_ID = 128  # maximum length of an identifier, bytes (UTF-8), because file names may have at most 255


@dataclass(slots=True)
class Row:
    """An input image: its entry in the manifest or folder tree, and the reason for its exclusion, if any.

    ``view_text``: the table's text for the view; ``extra``: unknown columns, which are passed on; ``line``: line in the
    manifest, else 0; ``report_missing``: whether the report file that the manifest names, or that the folder tree
    should contain, is missing; ``expected_report``: path of this file; ``path_problem``: why no file fits the image's
    path.
    """

    image_id: str
    study_id: str
    subject_id: str
    path: str
    report_path: str | None = None
    report_missing: bool = False
    expected_report: str = ""
    findings: str | None = None
    impression: str | None = None
    view: str = ""
    split: str = ""
    acquired: str | None = None
    size: tuple[int, int] | None = None
    extra: dict[str, str] = field(default_factory=dict)
    reason: str | None = None
    detail: str = ""
    line: int = 0
    view_text: str = ""
    path_problem: str = ""

    @property
    def needs_header(self) -> bool:
        """Whether the view or the size of the image is unknown, so that its file must be opened."""
        return not self.view or self.size is None

    def exclude(self, reason: str, detail: str = "") -> None:
        """Exclude the image, unless an earlier check has already excluded it."""
        if self.reason is None:
            self.reason, self.detail = reason, detail


def describe_unusable(identifier: str) -> str:
    """Return why an identifier cannot be part of a file name, "" if it can. The text does not quote the identifier."""
    if not identifier:
        return "is empty"
    if (length := len(identifier.encode())) > LONGEST_ID:
        return f"has {length} bytes, at most {LONGEST_ID} are allowed"
    if match := _UNUSABLE.search(identifier):
        return f"holds {match.group()!r}" if match.group() in "/\\" else "holds a control character or a line break"
    return "consists of dots" if identifier in (".", "..") else ""


def settle_ids(rows: list[Row], shared_images: str) -> None:
    """Exclude rows whose ids cannot be file names, contradictory rows and repeated rows; make all image ids unique.

    Rows contradict each other if they assign a study or a report file to several subjects, or an image_id to several
    studies or reports. All of these rows are excluded, because the correct row is unknown. If several studies share an
    image file, its rows are excluded with ``shared_images`` "exclude". With "accept", they are listed in a warning. The
    order of the rows does not decide which of several rows of an image is kept. An excluded row that cannot keep its
    ``image_id`` gets an id from its line or number (from 1), so that each row is counted.
    """
    usable_rows = []
    for number, row in enumerate(rows, 1):
        wrong = [f"{name} {why}" for name in IDS if (why := describe_unusable(getattr(row, name)))]
        if wrong:
            row.exclude("bad_row", ", ".join(wrong))
            row.image_id = row.image_id if not describe_unusable(row.image_id) else f"row-{row.line or number}"
        else:
            usable_rows.append(row)
    _exclude_shared(usable_rows, "study_id", "study_id", "subject_id")
    _exclude_shared(usable_rows, "report file", "report_path", "subject_id")
    if shared_images == "exclude":
        _exclude_shared(usable_rows, "image file", "path", "subject_id")
        _exclude_shared(usable_rows, "image file", "path", "study_id")
    else:
        groups = group_rows((row for row in usable_rows if row.reason is None), "path").values()
        shared = [group for group in groups if len({row.study_id for row in group}) > 1]
        if shared:
            log.warning(
                "%s assigned to several studies%s, so that several reports describe one image: correct the "
                "paths, or exclude these rows with cohort.shared_images: exclude",
                count_phrase(len(shared), "image file is", "image files are"),
                _lines([row for group in shared for row in group]),
            )
    _settle_copies(rows)
    for row in rows:
        if row.line and row.reason in ("bad_row", "duplicate_image"):
            row.detail = f"line {row.line}: {row.detail}"


def _lines(rows: list[Row]) -> str:
    lines = sorted(row.line for row in rows if row.line)
    return f" ({listed_lines(lines)})" if lines else ""


def group_rows(rows: Iterable[Row], *names: str) -> dict[tuple, list[Row]]:
    """Group rows by the fields ``names``; return {values of the fields: rows}."""
    groups: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(getattr(row, name) for name in names)].append(row)
    return groups


def _exclude_shared(rows: list[Row], thing: str, name: str, owner: str) -> None:
    """Exclude rows that share a value of the field ``name``, called ``thing`` in messages, but differ in ``owner``."""
    for group in group_rows((row for row in rows if getattr(row, name)), name).values():
        if (owners := len({getattr(row, owner) for row in group})) > 1:
            whose = {"subject_id": "subjects", "study_id": "studies"}[owner]
            for row in group:
                row.exclude("bad_row", f"the {thing} is assigned to {owners} {whose}{_lines(group)}")


def _settle_copies(rows: list[Row]) -> None:
    same = {image_id: group for (image_id,), group in group_rows(rows, "image_id").items()}
    files = group_rows((row for row in rows if row.reason is None), "study_id", "path")
    for copies in same.values():
        used = [row for row in copies if row.reason is None]
        if len({(row.subject_id, row.study_id, row.report_path, row.findings, row.impression) for row in used}) > 1:
            for row in used:
                row.exclude("duplicate_image", f"rows of one image_id differ in study or report{_lines(used)}")
    for copies in files.values():
        first_id = min(row.image_id for row in copies)
        for copy in copies:
            if copy.image_id != first_id:
                copy.exclude("duplicate_image", f"another row has the same image file{_lines(copies)}")
    for image_id, copies in list(same.items()):
        copies.sort(key=lambda row: (row.reason is not None, row.study_id, row.subject_id, row.path, row.view))
        number = 1
        for copy in copies[1:]:
            copy.exclude("duplicate_image", "another row has the same image_id")
            number += 1
            while f"{image_id}-{number}" in same:
                number += 1
            copy.image_id = f"{image_id}-{number}"


def exclude_listed(rows: list[Row], path: str) -> int:
    """Exclude the rows whose id is in a list; return the number of ids in the list that match no row.

    A CSV with a column image_id, dicom_id or image_file lists images, and a CSV with only study_id lists studies. In a
    file without a header, each line begins with the id of an image or study. Study ids match with and without an "s".
    """
    names = EXCLUDE_COLUMNS
    sheet = read_sheet(path, "cohort.exclude", names, ids=names, words=names, headless=True)
    column = next((name for name in names if name in sheet.header), "")
    place = sheet.header.index(column) if column else 0
    unused = {cells[place] for _, cells in (sheet.checked() if column else sheet.rows)} - {""}
    ids = frozenset(unused)
    for row in rows:
        row_ids = {row.image_id} if column != "study_id" else set()
        row_ids |= {row.study_id, f"s{row.study_id}"} if column in ("", "study_id") else set()
        if hits := ids & row_ids:
            unused -= hits
            row.exclude("listed")
    return len(unused)


def exclude_failed(rows: list[Row], folder: str) -> None:
    """Exclude images with a label other than 1 in a CheXStruct table. An image that is in no table is kept."""
    failed: dict[str, str] = {}
    for name, path in chexstruct_tables(folder).items():
        sheet = read_sheet(path, "cohort.chexstruct", CHEXSTRUCT_COLUMNS, ids=CHEXSTRUCT_IDS, words=CHEXSTRUCT_IDS)
        place = next(sheet.header.index(column) for column in CHEXSTRUCT_IDS if column in sheet.header)
        label = sheet.header.index("label")
        for _, cells in sheet.checked():
            if cells[label].strip().lower() not in ("", "nan", "1", "1.0"):
                # The column contains file names in the generator's tables, ids in the published tables.
                for image in (cells[place], re.sub(r"\.(dcm|jpe?g|png)$", "", cells[place])):
                    failed.setdefault(image, name)
    for row in rows:
        if row.image_id in failed:
            row.exclude("failed_quality_table", failed[row.image_id])


ID_COLUMNS: Columns = {
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Its study."),
    "subject_id": Column(pl.String, "Its patient."),
}
SHARD: Columns = ID_COLUMNS | {
    "split": Column(pl.String, "train, validate or test."),
    "path": Column(pl.String, "Image file."),
    "view": Column(pl.String, "View, PA or AP."),
    "rank": Column(pl.Int32, "Order in which the images of a study are tried, from 0."),
    "report_path": Column(pl.String, "Report file; null if it is missing, or if the text is in the next columns."),
    "report_missing": Column(pl.Boolean, "Whether the named report file is missing."),
    "findings": Column(pl.String, "Findings section, if the cohort's table contains it."),
    "impression": Column(pl.String, "Impression section, if the cohort's table contains it."),
    "acquired": Column(pl.String, "Time of acquisition, a text that sorts by time."),
}
IMAGES: Columns = ID_COLUMNS | {
    "split": Column(pl.String, "train, validate or test; null for an image without a patient in any split."),
    "shard": Column(pl.String, "Shard, a part of the cohort with all images of the patient."),
    "view": Column(pl.String, "View, PA, AP or OTHER; null if unknown."),
    "reason": Column(pl.String, "Reason for exclusion; null for an accepted image."),
}
BATCH = 256  # number of items per task; submitting a task takes longer than listing a folder


def in_batches(pool: Executor, function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """Yield ``function(item)`` for each item, in order. The pool computes the results."""
    batches = [items[first : first + BATCH] for first in range(0, len(items), BATCH)]
    return chain.from_iterable(pool.map(lambda batch: [function(item) for item in batch], batches))
