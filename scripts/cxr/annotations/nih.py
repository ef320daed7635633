"""NIH ChestX-ray14: the boxes of ``BBox_List_2017.csv``."""

from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import from_sides, rows, sides, sifted, write_rows

WHAT = "BBox_List_2017.csv of ChestX-ray14"
HOLDS = ("box",)
CORNERS = ("Bbox [x", "y", "w", "h]")
"""How the official table calls its columns: one name, ``Bbox [x,y,w,h]``, cut at its commas."""
COLUMNS = ("Image Index", "Finding Label", *CORNERS)
LESIONS = {
    "Cardiomegaly": "cardiomegaly", "Pneumonia": "pneumonia", "Atelectasis": "atelectasis",
    "Infiltrate": "opacity", "Effusion": "effusion",
}  # fmt: skip


def read(key: str, path: Path) -> Annotations:
    """Read the table. Raises UserError."""
    found = [
        Annotation(row["Image Index"], row["Finding Label"], from_sides(row[name] for name in CORNERS))
        for row in rows(key, path, "nih", COLUMNS)
    ]
    return sifted(found)


def write(path: Path, held: Annotations) -> None:
    """Write the table, with the empty columns that the official one has at its end; it has no picture without a box."""
    cells = ((one.image, one.label, *sides(one.box), "", "", "") for one in held.regions)
    write_rows(path, (*COLUMNS, "", "", ""), cells)
