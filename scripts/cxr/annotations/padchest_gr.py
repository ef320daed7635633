"""PadChest and PadChest-GR (BIMCV): PadChest's table of images, and reports with boxes for their sentences.

The folder of PadChest-GR has a JSON list of reports, ``grounded_reports_*.json``. A report has StudyID, ImageID and
``findings``. A finding has ``sentence_en``, ``boxes``, ``extra_boxes`` and labels. Boxes are x1, y1, x2, y2 as
fractions of the image's sides. ``master_table.csv`` has the split of each image."""

import json
from pathlib import Path
from typing import NamedTuple

import polars as pl

from cxr.annotations.label_tables import decode_sex, normalise_id, read_columns
from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import refuse_damaged
from cxr.base.errors import UserError
from cxr.base.ids import clean_id

WHAT = "folder of PadChest-GR (grounded_reports_*.json, master_table.csv, the table of PadChest)"
FOLDER = True
TABLE = "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv"
MASTER = "master_table.csv"
REPORTS = "grounded_reports_*.json"
COLUMNS = ("ImageID", "StudyID", "PatientID", "Projection")
BESIDES = ("PatientSex_DICOM", "Rows_DICOM", "Columns_DICOM")
VIEWS = {"PA": "PA", "AP": "AP", "AP_horizontal": "AP"}  # {frontal projection: view}; AP_horizontal is supine


def find_one_file(key: str, folder: Path, pattern: str) -> Path:
    """Return the one file, gzipped or not, that matches a pattern in a folder. Raises UserError for none or several."""
    paths = sorted({*folder.glob(pattern), *folder.glob(f"{pattern}.gz")})
    if len(paths) != 1:
        fault = "has no" if not paths else f"has {len(paths)} files of the name"
        raise UserError(f"{key}: {folder} {fault} {pattern}: give the folder of the release")
    return paths[0]


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of the reports' sentences, in pixels. An image whose size is unknown counts as annotated, without
    boxes. Raises UserError if a file is missing or damaged."""
    images = {row["image_id"]: row for row in read_images(key, find_one_file(key, path, TABLE)).iter_rows(named=True)}
    split_by_image = dict(read_master(key, find_one_file(key, path, MASTER)).iter_rows())
    regions, image_names = [], set()
    for report in read_reports(key, find_one_file(key, path, REPORTS)):
        row = images.get(report.image_id)
        image_names.add(report.image_id)
        if row is None or not row["rows"] or not row["columns"]:
            continue
        size = (row["rows"], row["columns"])
        for sentence in report.sentences:
            for box in sentence.boxes:
                pixels = tuple(round(float(part) * size[(place + 1) % 2], 9) for place, part in enumerate(box))
                fields = {"size": size, "phrase": sentence.text, "split": split_by_image.get(report.image_id, "")}
                label = str(next(iter(sentence.labels), "finding"))
                regions.append(Annotation(report.image_id, label, pixels, **fields))
    return Annotations(regions, image_names)


class Sentence(NamedTuple):
    """A sentence of a report with its boxes and labels."""

    text: str
    boxes: list  # boxes as fractions of the image's sides
    extra: list  # boxes in the field ``extra_boxes``, also as fractions
    labels: list[str]


class Report(NamedTuple):
    """A report: the sentences about one image, in their order."""

    image_id: str
    study_id: str
    sentences: list[Sentence]


def read_images(key: str, path: Path) -> pl.DataFrame:
    """Return a table with image_id, study_id, subject_id, projection, view, sex, rows and columns of the images. Ids
    are strings. ``view`` is null if an image is not frontal. Raises UserError for a missing column."""
    table = read_columns(key, path, "PadChest", COLUMNS, BESIDES, ids=COLUMNS[:3], words=COLUMNS[:3])
    number = {name: pl.col(name).cast(pl.Float64, strict=False).cast(pl.Int64, strict=False) for name in BESIDES[1:]}
    return table.select(
        image_id="ImageID",
        study_id=normalise_id("StudyID"),
        subject_id=normalise_id("PatientID"),
        projection="Projection",
        view=pl.col("Projection").replace_strict(VIEWS, default=None, return_dtype=pl.String),
        sex=decode_sex("PatientSex_DICOM"),
        rows=number["Rows_DICOM"],
        columns=number["Columns_DICOM"],
    )


def read_master(key: str, path: Path) -> pl.DataFrame:
    """Return a table of ``image_id`` and ``split``, a row per image. Raises UserError for a missing column."""
    table = read_columns(key, path, "PadChest-GR", ("ImageID", "split"), ids=("ImageID",))
    return table.select(image_id="ImageID", split="split").unique("image_id", keep="first", maintain_order=True)


def read_reports(key: str, path: Path) -> list[Report]:
    """Return the reports in a JSON file. Raises UserError if the file is damaged or has another content."""
    reports = []
    with refuse_damaged(path, f"{key}: {path} is not a list of grounded reports"):
        for entry in json.loads(path.read_text(encoding="utf-8-sig")):
            sentences = []
            for row in entry["findings"]:
                lists = (row.get(name) or [] for name in ("boxes", "extra_boxes", "labels"))
                sentences.append(Sentence(str(row.get("sentence_en") or "").strip(), *lists))
            reports.append(Report(clean_id(str(entry["ImageID"])), clean_id(str(entry["StudyID"])), sentences))
    return reports
