"""One input image on its way through the cohort stage."""

import re
from collections import defaultdict
from dataclasses import dataclass, field

_UNUSABLE = re.compile(r"[\x00-\x1f\x7f/\\]")
LONGEST_ID = 128
"""Characters an identifier may have: it becomes part of file names."""


@dataclass(slots=True)
class Row:
    """An input image: what the manifest or the tree says of it, and the reason if it is excluded.

    ``view``, ``rows`` and ``columns`` are what a table says, before the header is looked at. ``extra`` holds the
    columns that we do not know, to be carried along.
    """

    image_id: str
    study_id: str
    subject_id: str
    path: str
    report_path: str | None = None
    findings: str | None = None
    impression: str | None = None
    view: str = ""
    split: str = ""
    acquired: str | None = None
    size: tuple[int, int] | None = None
    extra: dict[str, str] = field(default_factory=dict)
    reason: str | None = None
    detail: str = ""

    def exclude(self, reason: str, detail: str = "") -> None:
        """Exclude the image, unless an earlier check has done so."""
        if self.reason is None:
            self.reason, self.detail = reason, detail


def usable(identifier: str) -> bool:
    """Tell whether an identifier can name a file and a row."""
    return 0 < len(identifier) <= LONGEST_ID and not _UNUSABLE.search(identifier) and identifier not in (".", "..")


def settle_ids(rows: list[Row]) -> None:
    """Exclude rows with unusable ids, second rows of an image and studies of two subjects; make every id unique.

    Which row of a duplicated image stays does not depend on the order of the rows. An excluded row that cannot keep
    its own ``image_id`` gets one made of its number (from 1), so that each input row stays countable.
    """
    subjects: dict[str, set[str]] = defaultdict(set)
    for number, row in enumerate(rows, 1):
        wrong = [name for name in ("image_id", "study_id", "subject_id") if not usable(getattr(row, name))]
        if wrong:
            row.exclude("bad_row", f"row {number}: no usable {', '.join(wrong)}")
            row.image_id = row.image_id if usable(row.image_id) else f"row-{number}"
        if usable(row.study_id) and usable(row.subject_id):
            subjects[row.study_id].add(row.subject_id)
    for row in rows:
        if len(subjects[row.study_id]) > 1:
            row.exclude("bad_row", f"the study_id is given to {len(subjects[row.study_id])} subjects")

    same: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        same[row.image_id].append(row)
    for image_id, copies in same.items():
        copies.sort(key=lambda row: (row.reason is not None, row.study_id, row.subject_id, row.path, row.view))
        number = 1
        for copy in copies[1:]:
            copy.exclude("duplicate_image", "of an image_id that another row has")
            number += 1
            while f"{image_id}-{number}" in same:
                number += 1
            copy.image_id = f"{image_id}-{number}"
