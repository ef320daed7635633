"""Write the manifest of public X-rays (docs/how-to/real.md) as input of the workflow: ``real.py DATA OUT``.

``DATA`` contains covid/ (X-rays with clinical notes, used as findings), dicom/ (chest X-rays and other DICOM files) and
nih/ (X-rays without reports, which get anomaly maps and then the reason no_report).
"""

import csv
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import cv2

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))

from cxr.geometry.rle import encode_rle

DRAWN = ("ground_glass_opacity", "consolidation")
"""The classes of the radiologists' masks that are lesions."""
SETTINGS = """\
cohort: {source: manifest, manifest: manifest.csv, shards: 3, split: {train: 60, validate: 20, test: 20}}
agreement:
  references:
    covid: {format: coco, path: references/covid.json, image_id: "covid-{stem}",
            classes: {ground_glass_opacity: opacity}}
    nih: {format: nih, path: references/BBox_List_2017.csv, image_id: "nih-{stem}"}
    rsna: {format: rsna, path: references/rsna.csv, image_id: "nih-{stem}"}
"""
COLUMNS = ("subject_id", "study_id", "image_id", "image_path", "findings", "view")


def rows(data: Path) -> Iterator[dict[str, str]]:
    """Yield one manifest row for each image in ``data``."""
    for row in _table(data / "covid" / "covid.csv"):
        stem = Path(row["image"]).stem
        view = row["view"].removesuffix(" Supine")
        image = data / "covid" / "images" / row["image"]
        yield _row(f"covid-{row['patient_id']}", f"covid-{stem}", image, row["clinical_notes"], view)
    for row in _table(data / "dicom" / "dicom.csv"):
        stem = Path(row["file"]).stem
        yield _row(f"dicom-{stem}", f"dicom-{stem}", data / "dicom" / row["file"], "", "")
    for row in _table(data / "nih" / "nih.csv"):
        stem = Path(row["image"]).stem
        image = data / "nih" / "images" / row["image"]
        yield _row(f"nih-{row['patient_id']}", f"nih-{stem}", image, "", row["view"])


def _row(subject: str, study: str, image: Path, findings: str, view: str) -> dict[str, str]:
    return dict(zip(COLUMNS, (subject, study, study, str(image), findings, view), strict=True))


def _table(path: Path) -> Iterator[dict[str, str]]:
    with open(path, newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def write_references(data: Path, folder: Path) -> None:
    """Write the human annotations of these images, each in the format in which its source publishes them.

    ``covid.json``: the radiologists' masks as COCO; ``BBox_List_2017.csv``: NIH's boxes; ``rsna.csv``: RSNA's boxes,
    with NIH's image names in place of RSNA's.
    """
    folder.mkdir(exist_ok=True)
    rows = list(_table(data / "nih" / "nih.csv"))
    nih = [
        [row["image"], box["label"], box["x"], box["y"], box["w"], box["h"], "", "", ""]
        for row in rows
        for box in json.loads(row["nih_boxes"])
    ]
    head = ["Image Index", "Finding Label", "Bbox [x", "y", "w", "h]", "", "", ""]
    _write(folder / "BBox_List_2017.csv", [head, *nih])
    rsna = []
    for row in (row for row in rows if row["rsna_id"]):
        boxes = [[box["x"], box["y"], box["w"], box["h"], 1] for box in json.loads(row["rsna_boxes"])]
        rsna += [[Path(row["image"]).stem, *box] for box in boxes or [["", "", "", "", 0]]]
    _write(folder / "rsna.csv", [["patientId", "x", "y", "width", "height", "Target"], *rsna])
    (folder / "covid.json").write_text(json.dumps(_coco(data / "covid")), encoding="utf-8")


def _coco(folder: Path) -> dict:
    held: dict = {"categories": [{"id": n, "name": name} for n, name in enumerate(DRAWN, 1)]}
    held |= {"images": [], "annotations": []}
    for row in _table(folder / "covid.csv"):
        masks = json.loads(row["masks"] or "{}")
        if not {"lung_right", "lung_left"} <= masks.keys():  # only images with lung masks were annotated
            continue
        number = len(held["images"]) + 1
        height, width = cv2.imread(str(folder / "images" / row["image"]), cv2.IMREAD_GRAYSCALE).shape
        held["images"].append({"id": number, "file_name": row["image"], "height": height, "width": width})
        for category, name in enumerate(DRAWN, 1):
            if name in masks:
                drawn = cv2.imread(str(folder / masks[name]), cv2.IMREAD_GRAYSCALE) > 0
                one = {"id": len(held["annotations"]) + 1, "image_id": number, "category_id": category}
                held["annotations"].append(one | {"segmentation": encode_rle(drawn)})
    return held


def _write(path: Path, rows: list[list]) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def main(data: Path, out: Path, keep: int | None = None) -> None:
    """Write manifest.csv, references and mine.yaml into ``out``; ``keep``: use only every n-th row, for a quick
    test."""
    if not data.is_dir():
        sys.exit(
            f"CXR_ILS_SHARED: there is no folder {data}: set it to the folder of data/covid, data/dicom and data/nih."
        )
    out.mkdir(parents=True, exist_ok=True)
    chosen = sorted(rows(data), key=lambda row: row["image_id"])[:: keep or 1]
    for row in chosen:
        row["image_path"] = os.path.relpath(row["image_path"], out)
    with open(out / "manifest.csv", "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(chosen)
    write_references(data, out / "references")
    (out / "mine.yaml").write_text(SETTINGS, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), int(sys.argv[3]) if len(sys.argv) > 3 else None)
