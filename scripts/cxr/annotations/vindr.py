"""VinDr-CXR (PhysioNet) and its copy VinBigData: boxes by single readers (train) or by consensus (test).

``annotations_train.csv`` and VinBigData's ``train.csv`` have the reader in ``rad_id``; ``annotations_test.csv`` lacks
that column. ``image_labels_*.csv`` have a row for each image and reader, with 1 or 0 for each label."""

from pathlib import Path

import polars as pl

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import drop_no_finding, parse_box, read_rows
from cxr.base.user_tables import read_frame, require_columns

WHAT = "CSV of VinDr-CXR (train, test) or VinBigData"
CORNERS = ("x_min", "y_min", "x_max", "y_max")
COLUMNS = ("image_id", "class_name", *CORNERS)
BESIDES = ("rad_id",)
CLASSES = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Clavicle fracture", "Consolidation", "Edema",
    "Emphysema", "Enlarged PA", "ILD", "Infiltration", "Lung Opacity", "Lung cavity", "Lung cyst", "Mediastinal shift",
    "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax", "Pulmonary fibrosis",
    "Rib fracture",
)  # fmt: skip
"""Findings for which VinDr-CXR has boxes. VinBigData has 14 of them."""
# labels of whole images
LABELS = (*CLASSES, "COPD", "Lung tumor", "Pneumonia", "Tuberculosis", "Other diseases", "No finding")
SAME_LABEL = {"Other disease": "Other diseases"}  # {label in the test file: label in the training file}
LESIONS = {
    "Cardiomegaly": "cardiomegaly", "Atelectasis": "atelectasis", "Lung Opacity": "opacity",
    "Infiltration": "opacity", "Consolidation": "consolidation", "Pleural effusion": "effusion", "Edema": "edema",
}  # fmt: skip


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of a training or test file. Raises UserError for a missing column."""
    regions = []
    for row in read_rows(key, path, "vindr", COLUMNS, BESIDES):
        box = parse_box(row[name] for name in CORNERS)
        regions.append(Annotation(row["image_id"], row["class_name"], box, reader=row.get("rad_id") or ""))
    return drop_no_finding(regions)


def read_labels(key: str, path: Path) -> pl.DataFrame:
    """Return a table of strings: image_id, rad_id (reader, "" in a test file), and a column of "0" and "1" per label,
    named as in the training file. Raises UserError for a file without image_id or labels."""
    table = read_frame(path, key, ("image_id", *BESIDES, *LABELS, *SAME_LABEL), ids=("image_id", *BESIDES))
    table = table.rename({old: new for old, new in SAME_LABEL.items() if old in table.columns})
    labels = [name for name in table.columns if name not in ("image_id", *BESIDES)]
    required = ("image_id",) if set(labels) & set(LABELS) else ("image_id", LABELS[0])
    require_columns(table.columns, required, path, key, "give a file of VinDr-CXR's image labels")
    table = table if BESIDES[0] in table.columns else table.with_columns(pl.lit("").alias(BESIDES[0]))
    return table.select(pl.col("image_id", BESIDES[0], *labels).str.strip_chars())
