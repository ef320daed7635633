"""PadChest-GR (BIMCV): a folder with grounded reports, the table of their images, and pictures."""

import json
from pathlib import Path

from cxr.annotations.padchest import MASTER, REPORTS, TABLE, read_images, read_master, read_reports
from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import write_rows
from cxr.base.errors import UserError

WHAT = "folder of PadChest-GR (grounded_reports_*.json, master_table.csv, the table of PadChest)"
FOLDER = True
HOLDS = ("box", "phrase", "size", "split")
LESIONS: dict[str, str] = {}
"""Its labels are names of findings of its own."""


def one_of(key: str, folder: Path, pattern: str) -> Path:
    """Return the file of a folder by its pattern, packed or not. Raises UserError if there is none, or several."""
    paths = sorted({*folder.glob(pattern), *folder.glob(f"{pattern}.gz")})
    if len(paths) != 1:
        fault = "has no" if not paths else f"has {len(paths)} files"
        raise UserError(f"{key}: {folder} {fault} {pattern}: give the folder of the release")
    return paths[0]


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of sentences, in pixels; an image of unknown size has none. Raises UserError."""
    images = {row["image_id"]: row for row in read_images(key, one_of(key, path, TABLE)).iter_rows(named=True)}
    split_by_image = dict(read_master(key, one_of(key, path, MASTER)).iter_rows())
    regions, image_names = [], set()
    for report in read_reports(key, one_of(key, path, REPORTS)):
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


def write(path: Path, annotations: Annotations) -> None:
    """Write a folder in the layout; an image without a region is one without sentences."""
    path.mkdir(parents=True, exist_ok=True)
    first_by_image = {region.image: region for region in reversed(annotations.regions)}
    reports, rows, master = [], [], []
    for image in sorted(annotations.seen | first_by_image.keys()):
        size = first_by_image[image].size if image in first_by_image else (1, 1)
        phrases: dict[tuple[str, str], list] = {}
        for region in annotations.regions:
            if region.image == image and region.box:
                box = [part / size[(place + 1) % 2] for place, part in enumerate(region.box)]
                phrases.setdefault((region.phrase, region.label), []).append(box)
        sentences = [
            {"sentence_en": text, "sentence_es": "", "boxes": boxes, "labels": [label]}
            for (text, label), boxes in phrases.items()
        ]
        reports.append({"StudyID": f"study-{image}", "ImageID": image, "findings": sentences})
        rows.append((image, f"study-{image}", f"patient-{image}", "PA", "", *size))
        if image in first_by_image and first_by_image[image].split:
            master.append((f"study-{image}", image, first_by_image[image].split))
    (path / "grounded_reports_20240819.json").write_text(json.dumps(reports), encoding="utf-8")
    header = ("ImageID", "StudyID", "PatientID", "Projection", "PatientSex_DICOM", "Rows_DICOM", "Columns_DICOM")
    write_rows(path / TABLE, header, rows)
    write_rows(path / MASTER, ("StudyID", "ImageID", "split"), master)
