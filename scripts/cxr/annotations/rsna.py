"""RSNA's pneumonia challenge: ``stage_2_train_labels.csv``, with boxes of lung opacity and images without one."""

from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import from_sides, rows, sides, write_rows

WHAT = "stage_2_train_labels.csv of RSNA's pneumonia challenge"
HOLDS = ("box",)
SIDES = ("x", "y", "width", "height")
COLUMNS = ("patientId", *SIDES, "Target")
LABEL = "Lung Opacity"
"""Label of every box in the file."""
LESIONS = {LABEL: "opacity"}


def read(key: str, path: Path) -> Annotations:
    """Read the table. Raises UserError."""
    found, seen = [], set()
    for row in rows(key, path, "rsna", COLUMNS):
        if row["Target"] == "1":
            found.append(Annotation(row["patientId"], LABEL, from_sides(row[name] for name in SIDES)))
        else:
            seen.add(row["patientId"])
    return Annotations(found, seen)


def write(path: Path, held: Annotations) -> None:
    """Write the table; it can hold no label but :data:`LABEL`."""
    cells = [(one.image, *sides(one.box), 1) for one in held.regions]
    nothing = sorted(held.seen - {one.image for one in held.regions})
    write_rows(path, COLUMNS, [*cells, *((image, *sides(None), 0) for image in nothing)])
