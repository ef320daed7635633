"""VinDr-CXR (PhysioNet) and its copy VinBigData: boxes of single readers (train) or of a consensus (test).

``annotations_train.csv`` and VinBigData's ``train.csv`` name the reader in ``rad_id``; ``annotations_test.csv`` lacks
that column.
"""

from pathlib import Path

from cxr.annotations.regions import Annotation, Annotations
from cxr.annotations.tabular import numbers, rows, sifted, write_rows

WHAT = "CSV of VinDr-CXR (train, test) or VinBigData"
HOLDS = ("box", "reader")
CORNERS = ("x_min", "y_min", "x_max", "y_max")
COLUMNS = ("image_id", "class_name", *CORNERS)
BESIDES = ("rad_id",)
CLASSES = (
    "Aortic enlargement", "Atelectasis", "Calcification", "Cardiomegaly", "Clavicle fracture", "Consolidation", "Edema",
    "Emphysema", "Enlarged PA", "ILD", "Infiltration", "Lung Opacity", "Lung cavity", "Lung cyst", "Mediastinal shift",
    "Nodule/Mass", "Other lesion", "Pleural effusion", "Pleural thickening", "Pneumothorax", "Pulmonary fibrosis",
    "Rib fracture",
)  # fmt: skip
"""Its findings with boxes; VinBigData has 14 of them."""
LESIONS = {
    "Cardiomegaly": "cardiomegaly", "Atelectasis": "atelectasis", "Lung Opacity": "opacity",
    "Infiltration": "opacity", "Consolidation": "consolidation", "Pleural effusion": "effusion", "Edema": "edema",
}  # fmt: skip


def read(key: str, path: Path) -> Annotations:
    """Read a training or test file. Raises UserError."""
    found = [
        Annotation(
            row["image_id"],
            row["class_name"],
            numbers(row[name] for name in CORNERS),
            reader=row.get("rad_id") or "",
        )
        for row in rows(key, path, "vindr", COLUMNS, BESIDES)
    ]
    return sifted(found)


def write(path: Path, held: Annotations) -> None:
    """Write a training file, or a test file if no region names a reader."""
    read_by = any(one.reader for one in held.regions)
    header = ("image_id", *(BESIDES if read_by else ()), "class_name", *CORNERS)
    found = [(one.image, one.reader, one.label, *(one.box or ("",) * 4)) for one in held.regions]
    nothing = sorted(held.seen - {one.image for one in held.regions})
    found += [(image, "R1", "No finding", *("",) * 4) for image in nothing]
    write_rows(path, header, found if read_by else ((image, *rest) for image, _, *rest in found))
