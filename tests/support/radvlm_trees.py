"""Small trees in the published layouts of RadVLM's sources, and how tests read them."""

import csv
import gzip
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.annotations.label_tables import LABELS
from cxr.radvlm.sources.facts import IMAGES_SCHEMA, ReadOptions, SourceRecords, facts_table
from cxr.radvlm.sources.read_sources import read_source

SIZE = (60, 80)
"""Rows and columns of every picture."""


def options(kind: str, path: Path, **more: object) -> ReadOptions:
    """Return the options of a source of a format, named like it."""
    keys = {"format": kind, "path": str(path), "pictures": "", "reports": "", "subject": ""} | more.pop("source", {})
    told = {
        "uncertain": "absent", "split": "mimic", "max_characters": 20_000,
        "section_overrides": True, "seed": 2026, "shares": [0.8, 0.1, 0.1],
    }  # fmt: skip
    return ReadOptions(name=kind, source=keys, **(told | more))


def found(one: ReadOptions, mimic: str = "") -> tuple[pl.DataFrame, pl.DataFrame, SourceRecords]:
    """Return the images, the facts and what else a source holds, every row of it accounted for."""
    held = read_source(one, mimic)
    held.conservation_rows(one.name)
    images = pl.DataFrame([{"source": one.name} | row for row in held.images], schema=IMAGES_SCHEMA).sort("image_id")
    return images, facts_table(one.name, held.facts, held.tables), held


def write_csv(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[object]], *, crlf: bool = False, bom: bool = False
) -> None:
    """Write a table as people's programs do: packed by its name, with CRLF or a byte order mark on request."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n" if crlf else "\n")
    writer.writerow(header)
    writer.writerows(rows)
    data = (b"\xef\xbb\xbf" if bom else b"") + text.getvalue().encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def picture(path: Path, size: tuple[int, int] = SIZE) -> None:
    """Write a picture by the ending of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.arange(size[0] * size[1], dtype=np.uint32).reshape(size) % 251
    depth = np.uint16 if path.suffix == ".png" else np.uint8
    assert cv2.imwrite(str(path), values.astype(depth))


# ---- CheXpert -------------------------------------------------------------------------------------------------------


def cells(**labels: str) -> list[str]:
    """Return the cells of the 14 labels, given by their names with _ for a blank; the others are empty."""
    named = {name.replace("_", " "): value for name, value in labels.items()}
    assert named.keys() <= set(LABELS)
    return [named.get(label, "") for label in LABELS]


CHEXPERT = ("Path", "Sex", "Age", "Frontal/Lateral", "AP/PA", *LABELS)


def chexpert_tree(folder: Path, **how: bool) -> Path:
    """Two patients in train, one in validation, one in test; a lateral view, a row twice, a path of another form."""
    at = "CheXpert-v1.0-small/train/patient00001/study1/view1_frontal.jpg"
    rows = [
        (at, "Female", "68", "Frontal", "AP", *cells(Edema="1.0", Support_Devices="1.0", Pneumonia="-1.0")),
        (at.replace("view1_frontal", "view2_lateral"), "Female", "68", "Lateral", "", *cells(Edema="1.0")),
        (at.replace("00001", "00002"), "Male", "40", "Frontal", "PA", *cells(No_Finding="1.0")),
        (at.replace("00001", "00002"), "Male", "40", "Frontal", "PA", *cells(No_Finding="1.0")),
        ("elsewhere.jpg", "Male", "40", "Frontal", "PA", *cells(No_Finding="1.0")),
        (at.replace("study1", "study2"), "Unknown", "0", "Frontal", "LL", *cells(Pneumonia="-1.0", Edema="0.0")),
    ]
    write_csv(folder / "train.csv", CHEXPERT, rows, **how)
    one = ("CheXpert-v1.0/valid/patient64541/study1/view1_frontal.jpg", "Male", "73", "Frontal", "AP")
    write_csv(folder / "valid.csv", CHEXPERT, [(*one, *cells(Cardiomegaly="1.0"))], **how)
    tested = [("test/patient64741/study1/view1_frontal.jpg", *cells(Atelectasis="1", Edema="0"))]
    write_csv(folder / "test.csv.gz", ("Path", *LABELS), tested, **how)
    picture(folder / at.removeprefix("CheXpert-v1.0-small/"))
    return folder


PLUS = (
    "path_to_image", "frontal_lateral", "ap_pa", "deid_patient_id", "section_findings", "section_impression", "sex",
    "race", "insurance_type", "split",
)  # fmt: skip


def chexpert_plus_tree(folder: Path, **how: bool) -> Path:
    """A study with findings in capitals, one with an impression alone, one without a text, one of no split.

    As published, its table names JPEG files and its pictures are PNG files.
    """

    def row(patient: int, view: str, findings: str, impression: str, split: str) -> tuple:
        path = f"train/patient{patient:05d}/study1/view1_{view.lower()}.jpg"
        return path, view, "AP", f"patient{patient:05d}", findings, impression, "Female", "secret", "secret", split

    rows = [
        row(1, "Frontal", "HEART IS LARGE, AGAIN. NO EFFUSION.", "x", "train"),
        row(2, "Frontal", "", '1. Small effusion, "stable".\n2. No pneumothorax.', "train"),
        row(3, "Frontal", "", "", "valid"),
        row(4, "Lateral", "Clear.", "", "train"),
        row(5, "Frontal", "Clear.", "", "nowhere"),
    ]
    write_csv(folder / "df_chexpert_plus_240401.csv", PLUS, rows, **how)
    labels = [{"path_to_image": rows[0][0], "Cardiomegaly": 1.0, "Pleural Effusion": 0.0, "Edema": None}]
    labels.append({"path_to_image": rows[1][0], "Pleural Effusion": -1.0})
    picture((folder / rows[0][0]).with_suffix(".png"))
    file = folder / "chexbert_labels/report_fixed.json"
    file.parent.mkdir(parents=True)
    file.write_text("".join(json.dumps(one) + "\n" for one in labels), encoding="utf-8")
    return folder


# ---- VinDr ----------------------------------------------------------------------------------------------------------

BOXES = ("x_min", "y_min", "x_max", "y_max")


def vindr_tree(folder: Path, reader: str = "rad_id", **how: bool) -> Path:
    """Train: two readers of one image, one that saw nothing, one without a picture; a test image with its consensus."""
    rows = [
        ("aa", "R1", "Edema", 10, 10, 30, 30),
        ("aa", "R2", "Edema", 12, 10, 32, 30),
        ("aa", "R1", "Nodule/Mass", 50, 40, 40, 50),  # corners swapped
        ("aa", "R2", "Nodule/Mass", 70, 50, 95, 58),  # beyond the right edge
        ("aa", "R2", "Edema", 5, 5, 5, 9),  # no width
        ("bb", "R1", "No finding", "", "", "", ""),
        ("bb", "R2", "No finding", "", "", "", ""),
        ("gone", "R1", "Edema", 1, 1, 2, 2),
    ]
    write_csv(folder / "annotations/annotations_train.csv", ("image_id", reader, "class_name", *BOXES), rows, **how)
    tested = [("cc", "Edema", 10, 10, 30, 30), ("cc", "Edema", 12, 10, 32, 30)]
    write_csv(folder / "annotations/annotations_test.csv", ("image_id", "class_name", *BOXES), tested, **how)
    for name in ("train/aa", "train/bb", "test/cc"):
        picture(folder / f"{name}.png")
    return folder


def vindr_labels(folder: Path, reader: str = "rad_id", **how: bool) -> None:
    """Labels of whole images beside a tree of VinDr: a row twice, two without a picture, a cell and a name unknown."""
    rows = [
        ("aa", "R1", 1, 0, 0, 0, 0), ("aa", "R2", "1.0", "0.0", 0, 1, 0), ("aa", "R2", 0, 0, 0, 0, 0),
        ("bb", "R1", 0, "", "maybe", 0, 1), ("gone", "R1", 1, 0, 0, 0, 0), ("cc", "R1", 1, 0, 0, 0, 0),
    ]  # fmt: skip
    named = ("Edema", "Pneumonia", "Aorta", "Other diseases", "No finding")
    write_csv(folder / "annotations/image_labels_train.csv", ("image_id", reader, *named), rows, **how)
    header = ("image_id", "Edema", "Other disease", "No finding")
    write_csv(folder / "annotations/image_labels_test.csv", header, [("cc", 1, 1, 0)], **how)


# ---- what lies on MIMIC ---------------------------------------------------------------------------------------------


def mimic_images(path: Path) -> str:
    """Write the table of images of a source mimic: three images, one of each split."""
    rows = [
        {"source": "mimic", "image_id": name, "study_id": f"0{number}", "subject_id": f"1{number}", "split": split,
         "view": "PA", "sex": None, "rows": SIZE[0], "columns": SIZE[1], "path": f"{name}.jpg", "frames": "mimic"}
        for number, (name, split) in enumerate({"d1": "train", "d2": "validate", "d3": "test"}.items())
    ]  # fmt: skip
    pl.DataFrame(rows, schema=IMAGES_SCHEMA).write_parquet(path)
    return str(path)


MS_CXR = ("dicom_id", "category_name", "label_text", "path", "x", "y", "w", "h", "image_width", "image_height", "split")


def ms_cxr_tree(folder: Path, **how: bool) -> Path:
    """A phrase with two boxes on d1, one on d3; rows of an unknown image, of another shape, without an area."""
    rows = [
        ("d1", "Edema", "edema, both sides", "p", 10, 10, 10, 10, 80, 60, "test"),
        ("d1", "Edema", "edema, both sides", "p", 40, 10, 10, 10, 80, 60, "test"),
        ("d3", "Pneumonia", 'a "patch" at the base', "p", 70, 50, 30, 30, 80, 60, "train"),
        ("dx", "Pneumonia", "nowhere", "p", 1, 1, 2, 2, 80, 60, "train"),
        ("d2", "Pneumonia", "other shape", "p", 1, 1, 2, 2, 2544, 3056, "train"),
        ("d2", "Pneumonia", "thin", "p", 1, 1, 0, 5, 80, 60, "train"),
    ]
    write_csv(folder / "MS_CXR_Local_Alignment_v1.1.0.csv", MS_CXR, rows, **how)
    return folder


REGIONS = {"right lung": (5, 5, 30, 50), "left upper abdomen": (40, 50, 70, 60), "svc": (3, 3, 3, 9)}


def imagenome_tree(folder: Path) -> Path:
    """Graphs of d1, d2, d3 and of an unknown image; d1 is of the gold set's patients."""
    graphs = folder / "silver_dataset/scene_graph"
    graphs.mkdir(parents=True)
    for name, gender in (("d1", "F"), ("d2", "M"), ("d3", ""), ("dx", "M")):
        corners = ("original_x1", "original_y1", "original_x2", "original_y2")
        objects = [
            {"bbox_name": region, "x1": 1, "y1": 1, "x2": 2, "y2": 2} | dict(zip(corners, box, strict=True))
            for region, box in REGIONS.items()
        ]  # fmt: skip
        text = json.dumps({"image_id": name, "viewpoint": "PA", "gender": gender, "objects": objects})
        (graphs / f"{name}_SceneGraph.json").write_text(text, encoding="utf-8")
    splits = folder / "silver_dataset/splits"
    header = ("subject_id", "study_id", "dicom_id", "path", "ViewPosition")
    write_csv(splits / "images_to_avoid.csv", header, [("10", "00", "d1", "x", "PA"), ("12", "02", "d3", "x", "PA")])
    for name, image in (("train", "d3"), ("valid", "d2"), ("test", "d1")):
        write_csv(splits / f"{name}.csv", header, [("1", "0", image, "x", "PA")])
    return folder


# ---- PadChest-GR ----------------------------------------------------------------------------------------------------

PADCHEST = (
    "",
    "ImageID",
    "StudyID",
    "PatientID",
    "PatientSex_DICOM",
    "Projection",
    "Rows_DICOM",
    "Columns_DICOM",
    "Report",
)


def padchest_tree(folder: Path, **how: bool) -> Path:
    """PA with a phrase, supine AP without one, a lateral view, an image of no split, one that no table has."""
    rows = [
        (0, "p1.png", "0101", "0201", "F", "PA", 60, 80, "torax, normal"),
        (1, "p2.png", "102.0", "202.0", "M", "AP_horizontal", "60.0", "80.0", "x"),
        (2, "p3.png", "103", "203", "", "L", 60, 80, "x"),
        (3, "p4.png", "104", "204", "O", "AP", 60, 80, "x"),
    ]
    write_csv(folder / "PADCHEST_chest_x_ray_images_labels_160K_01.02.19.csv.gz", PADCHEST, rows, **how)
    master = [("0101", "p1.png", "a", "train"), ("0101", "p1.png", "b", "train"), ("102", "p2.png", "a", "validation"),
              ("103", "p3.png", "a", "test")]  # fmt: skip
    write_csv(folder / "master_table.csv", ("StudyID", "ImageID", "label", "split"), master, **how)
    said = {"sentence_en": "Patch on the right.", "sentence_es": "Parche.", "abnormal": True, "labels": ["infiltrates"]}
    boxed = said | {"boxes": [[0.1, 0.2, 0.3, 0.6], [0.5, 0.5, 0.5, 0.9]], "extra_boxes": [[0.0, 0.0, 0.1, 0.1]]}
    plain = {"sentence_en": "No effusion.", "sentence_es": "Sin derrame."}
    reports = [
        {"StudyID": "0101", "ImageID": "p1.png", "findings": [boxed, plain]},
        {"StudyID": "102", "ImageID": "p2.png", "findings": [plain]},
        *({"StudyID": "x", "ImageID": f"p{number}.png", "findings": [boxed]} for number in (3, 4, 5)),
    ]
    (folder / "grounded_reports_20240819.json").write_text(json.dumps(reports), encoding="utf-8")
    picture(folder / "p1.png")
    return folder
