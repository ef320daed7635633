"""Chest ImaGenome (PhysioNet), gold set: boxes of anatomical zones that readers drew on images of MIMIC-CXR."""

from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import parse_box, read_rows

WHAT = "gold_bbox_coordinate_annotations_1000images.csv of Chest ImaGenome (anatomical zones)"
CORNERS = ("original_x1", "original_y1", "original_x2", "original_y2")
COLUMNS = ("image_id", "bbox_name", *CORNERS)


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of the table ``path``, which the setting ``key`` names. Raises UserError for a missing column."""
    regions = [
        Annotation(row["image_id"], row["bbox_name"], parse_box(row[name] for name in CORNERS))
        for row in read_rows(key, path, "chest_imagenome", COLUMNS)
    ]
    return Annotations(regions, set())
