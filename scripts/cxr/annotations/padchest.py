"""PadChest (BIMCV): its table of images, and PadChest-GR's sentences with boxes.

PadChest-GR has a JSON list of reports ``grounded_reports_*.json``: StudyID, ImageID and ``findings``, each with
``sentence_en``, ``boxes`` and ``extra_boxes`` (x1, y1, x2, y2 of the unit square), labels. ``master_table.csv`` has the
split of each image.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from cxr.annotations.label_tables import as_id, read_columns, sex
from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.ids import clean_id

TABLE = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
MASTER = "master_table.csv"
REPORTS = "grounded_reports_*.json"
COLUMNS = ("ImageID", "StudyID", "PatientID", "Projection")
BESIDES = ("PatientSex_DICOM", "Rows_DICOM", "Columns_DICOM")
VIEWS = {"PA": "PA", "AP": "AP", "AP_horizontal": "AP"}
"""Projections that are frontal; AP_horizontal is supine."""


@dataclass(frozen=True)
class Sentence:
    """A sentence of a report, with its boxes and further ones in the unit square, and its labels."""

    text: str
    boxes: list
    extra: list
    labels: list[str]


@dataclass(frozen=True)
class Report:
    """The sentences about an image, in their order."""

    image_id: str
    study_id: str
    sentences: list[Sentence]


def read_images(key: str, path: Path) -> pl.DataFrame:
    """Return image_id, study_id, subject_id, projection, view (null if not frontal), sex, rows, columns of the table.

    Ids are texts. Raises UserError for a missing column.
    """
    table = read_columns(key, path, "PadChest", COLUMNS, BESIDES, ids=COLUMNS[:3], words=COLUMNS[:3])
    number = {name: pl.col(name).cast(pl.Float64, strict=False).cast(pl.Int64, strict=False) for name in BESIDES[1:]}
    return table.select(
        image_id="ImageID",
        study_id=as_id("StudyID"),
        subject_id=as_id("PatientID"),
        projection="Projection",
        view=pl.col("Projection").replace_strict(VIEWS, default=None, return_dtype=pl.String),
        sex=sex("PatientSex_DICOM"),
        rows=number["Rows_DICOM"],
        columns=number["Columns_DICOM"],
    )


def read_master(key: str, path: Path) -> pl.DataFrame:
    """Return ``image_id`` and the ``split`` as the table writes it, an image a row. Raises UserError."""
    table = read_columns(key, path, "PadChest-GR", ("ImageID", "split"), ids=("ImageID",))
    return table.select(image_id="ImageID", split="split").unique("image_id", keep="first", maintain_order=True)


def read_reports(key: str, path: Path) -> Iterator[Report]:
    """Yield the reports of the JSON. Raises UserError for another file."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            entries = json.load(file)
        reports = [_report(entry) for entry in entries]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        refuse_machine_fault(path, error)
        cause = f"{type(error).__name__}: {error}"
        raise UserError(f"{key}: {path} is no list of grounded reports ({cause}): check it") from None
    yield from reports


def _report(entry: dict) -> Report:
    sentences = [
        Sentence(
            str(row.get("sentence_en") or "").strip(),
            row.get("boxes") or [],
            row.get("extra_boxes") or [],
            row.get("labels") or [],
        )
        for row in entry["findings"]
    ]
    return Report(clean_id(str(entry["ImageID"])), clean_id(str(entry["StudyID"])), sentences)
