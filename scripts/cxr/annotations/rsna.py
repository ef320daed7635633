"""RSNA's pneumonia challenge: ``stage_2_train_labels.csv``, with boxes of lung opacity, and images without a box."""

from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import box_from_sides, read_rows

WHAT = "stage_2_train_labels.csv of RSNA's pneumonia challenge"
SIDES = ("x", "y", "width", "height")
COLUMNS = ("patientId", *SIDES, "Target")
LABEL = "Lung Opacity"  # label of every box in the file
LESIONS = {LABEL: "opacity"}


def read(key: str, path: Path) -> Annotations:
    """Read the boxes of the table ``path``, which the setting ``key`` names. Raises UserError for a missing column."""
    regions, image_names = [], set()
    for row in read_rows(key, path, "rsna", COLUMNS):
        if row["Target"] == "1":
            regions.append(Annotation(row["patientId"], LABEL, box_from_sides(row[name] for name in SIDES)))
        else:
            image_names.add(row["patientId"])
    return Annotations(regions, image_names)
