"""MS-CXR (PhysioNet): phrases and their boxes on images of MIMIC-CXR.

All boxes of an image with the same ``label_text`` belong to one phrase. Version 1.1.0 has the column ``split``."""

from pathlib import Path

from cxr.annotations import coco
from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import box_from_sides, drop_no_finding, parse_numbers, read_rows

WHAT = "CSV or JSON of MS-CXR"
COLUMNS = ("dicom_id", "category_name", "x", "y", "w", "h")
BESIDES = ("label_text", "image_width", "image_height", "split")
LESIONS = {
    "Cardiomegaly": "cardiomegaly", "Pneumonia": "pneumonia", "Atelectasis": "atelectasis",
    "Lung Opacity": "opacity", "Consolidation": "consolidation", "Edema": "edema", "Pleural Effusion": "effusion",
}  # fmt: skip


def read(key: str, path: Path) -> Annotations:
    """Read the CSV or the COCO JSON of the release. Raises UserError for a file that is neither."""
    if path.suffix == ".json":
        return coco.read(key, path)
    return drop_no_finding([_parse_region(row) for row in read_rows(key, path, "ms_cxr", COLUMNS, BESIDES)])


def _parse_region(row: dict) -> Annotation:
    size = parse_numbers(row.get(name) for name in ("image_height", "image_width"))
    return Annotation(
        row["dicom_id"],
        row["category_name"],
        box_from_sides(row[name] for name in ("x", "y", "w", "h")),
        size=(int(size[0]), int(size[1])) if size else None,
        phrase=row.get("label_text") or "",
        split=row.get("split") or "",
    )
