"""NIH ChestX-ray14: the boxes of ``BBox_List_2017.csv``."""

from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import box_from_sides, drop_no_finding, read_rows

WHAT = "BBox_List_2017.csv of ChestX-ray14"
CORNERS = ("Bbox [x", "y", "w", "h]")  # names in the official table: ``Bbox [x,y,w,h]``, split at its commas
COLUMNS = ("Image Index", "Finding Label", *CORNERS)
LESIONS = {
    "Cardiomegaly": "cardiomegaly", "Pneumonia": "pneumonia", "Atelectasis": "atelectasis",
    "Infiltrate": "opacity", "Effusion": "effusion",
}  # fmt: skip


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of the table ``path``, which the setting ``key`` names. Raises UserError for a missing column."""
    regions = [
        Annotation(row["Image Index"], row["Finding Label"], box_from_sides(row[name] for name in CORNERS))
        for row in read_rows(key, path, "nih", COLUMNS)
    ]
    return drop_no_finding(regions)
