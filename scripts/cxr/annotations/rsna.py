"""RSNA's pneumonia challenge: ``stage_2_train_labels.csv``, with boxes of lung opacity and images without one."""

from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import box_from_sides, box_sides, read_rows, write_rows

WHAT = "stage_2_train_labels.csv of RSNA's pneumonia challenge"
HOLDS = ("box",)
SIDES = ("x", "y", "width", "height")
COLUMNS = ("patientId", *SIDES, "Target")
LABEL = "Lung Opacity"  # label of every box in the file
LESIONS = {LABEL: "opacity"}


def read(key: str, path: Path) -> Annotations:
    """Read the table. Raises UserError."""
    regions, image_names = [], set()
    for row in read_rows(key, path, "rsna", COLUMNS):
        if row["Target"] == "1":
            regions.append(Annotation(row["patientId"], LABEL, box_from_sides(row[name] for name in SIDES)))
        else:
            image_names.add(row["patientId"])
    return Annotations(regions, image_names)


def write(path: Path, annotations: Annotations) -> None:
    """Write the table; it can hold no label but :data:`LABEL`."""
    cells = [(region.image, *box_sides(region.box), 1) for region in annotations.regions]
    images_without_finding = sorted(annotations.seen - {region.image for region in annotations.regions})
    write_rows(path, COLUMNS, [*cells, *((image, *box_sides(None), 0) for image in images_without_finding)])
