"""Boxes and masks drawn by people, in the formats they are published in, read into one form.

Coordinates are continuous, in pixels of the picture that was annotated: the pixel (0, 0) covers 0 to 1. Nothing is
clipped, mapped or left out here but rows that say "no finding", whose pictures count as looked at.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import cv2
import numpy as np

from cxr.base.errors import UserError
from cxr.base.user_tables import read_frame
from cxr.geometry.rle import decode

FORMATS = ("ms_cxr", "vindr", "nih", "rsna", "coco", "release")
RELEASE_JSON, RELEASE_MASKS = "mimic_ils_instruction_answer.json", "lesion_mask"
NO_FINDING = ("no finding", "normal", "no lung opacity / not normal")
NIH_CORNERS = ("Bbox [x", "y", "w", "h]")
"""How the official table calls its columns: one name, ``Bbox [x,y,w,h]``, cut at its commas."""
COLUMNS = {
    "ms_cxr": ("dicom_id", "category_name", "x", "y", "w", "h"),
    "vindr": ("image_id", "class_name", "x_min", "y_min", "x_max", "y_max"),
    "nih": ("Image Index", "Finding Label", *NIH_CORNERS),
    "rsna": ("patientId", "x", "y", "width", "height", "Target"),
}
ENDINGS = (".png", ".jpg", ".jpeg", ".dcm", ".dicom", ".tif", ".tiff", ".bmp")
RSNA_LABEL = "Lung Opacity"
LESIONS = {
    "ms_cxr": {
        "Cardiomegaly": "cardiomegaly", "Pneumonia": "pneumonia", "Atelectasis": "atelectasis",
        "Lung Opacity": "opacity", "Consolidation": "consolidation", "Edema": "edema", "Pleural Effusion": "effusion",
    },
    "vindr": {
        "Cardiomegaly": "cardiomegaly", "Atelectasis": "atelectasis", "Lung Opacity": "opacity",
        "Infiltration": "opacity", "Consolidation": "consolidation", "Pleural effusion": "effusion", "Edema": "edema",
    },
    "nih": {
        "Cardiomegaly": "cardiomegaly", "Pneumonia": "pneumonia", "Atelectasis": "atelectasis",
        "Infiltrate": "opacity", "Effusion": "effusion",
    },
    "rsna": {RSNA_LABEL: "opacity"},
    "coco": {},
    "release": {},
}  # fmt: skip
"""Lesion type of each label of a format, where it has one (ours; infiltrate is an opacity, as in the reports)."""
BOX_CLASS = {
    "cardiomegaly": "Cardiomegaly", "pneumonia": "Infiltration", "atelectasis": "Atelectasis",
    "opacity": "Lung Opacity", "consolidation": "Consolidation", "edema": "ILD", "effusion": "Pleural effusion",
}  # fmt: skip
"""Class of the detector's set nearest to each lesion type, for people's boxes in place of a detector's."""


@dataclass(frozen=True)
class Annotation:
    """One region: a ``box`` (x1, y1, x2, y2), a mask that was ``drawn``, or both.

    ``image``: name of the picture as the file has it; ``drawn``: polygons or run lengths of COCO, or a picture that is
    above 0 where the mask is; ``reader``: who drew it, "" if untold; ``size``: (rows, columns) of the picture it was
    drawn on, None if untold.
    """

    image: str
    label: str
    box: tuple[float, float, float, float] | None = None
    drawn: dict | list | Path | None = None
    reader: str = ""
    size: tuple[int, int] | None = None

    def mask(self) -> np.ndarray | None:
        """Return the mask, bool (rows, columns), None without one; made when it is asked for, a file has thousands.

        Raises ValueError for a mask that cannot be read.
        """
        if isinstance(self.drawn, dict):
            return decode(self.drawn)
        if isinstance(self.drawn, Path):
            held = cv2.imread(str(self.drawn), cv2.IMREAD_GRAYSCALE)
            if held is None:
                raise ValueError(f"{self.drawn.name} cannot be read")
            return held > 0
        if not self.drawn:
            return None
        if self.size is None:
            raise ValueError("a picture with polygons has no height and width")
        return polygons(self.drawn, self.size)


def read(key: str, path: str | Path, kind: str) -> tuple[list[Annotation], set[str]]:
    """Return the regions of a file of one of :data:`FORMATS` and the names of all pictures that were looked at.

    ``key``: the setting that names the file. A ``ms_cxr`` file may be the CSV or the COCO JSON of the release. The
    test file of ``vindr`` names no readers: its boxes are a consensus. Raises UserError for a file that cannot be read
    as that format.
    """
    path = Path(path)
    if kind == "release":
        found, seen = _release(key, path), set()
    elif kind == "coco" or path.suffix == ".json":
        found, seen = _coco(key, path)
    else:
        found, seen = _table(key, path, kind)
    return found, seen | {one.image for one in found}


def image_name(template: str, name: str) -> str:
    """Return the cohort's image_id of a picture: ``template`` with its {name} (no folder) or {stem} (no ending)."""
    base = PurePosixPath(name)
    stem = base.stem if base.suffix.lower() in ENDINGS else base.name
    return template.replace("{name}", base.name).replace("{stem}", stem)


def _table(key: str, path: Path, kind: str) -> tuple[list[Annotation], set[str]]:
    table = read_frame(path, key, COLUMNS[kind])
    missing = [name for name in COLUMNS[kind] if name not in table.columns]
    if missing:
        raise UserError(f"{key} {str(path)!r} lacks the column {missing[0]!r} of a file of the format {kind}: check it")
    rows = [_row(row, kind) for row in table.iter_rows(named=True)]
    seen = {row.image for row in rows if row.label.lower() in NO_FINDING}
    return [row for row in rows if row.label.lower() not in NO_FINDING], seen


def _row(row: dict, kind: str) -> Annotation:
    if kind == "vindr":
        corners = _numbers(row[name] for name in ("x_min", "y_min", "x_max", "y_max"))
        return Annotation(row["image_id"], row["class_name"], corners, reader=row.get("rad_id") or "")
    if kind == "rsna":
        label = RSNA_LABEL if row["Target"] == "1" else NO_FINDING[0]
        return Annotation(row["patientId"], label, _from_sides(row[name] for name in ("x", "y", "width", "height")))
    if kind == "nih":
        box = _from_sides(row[name] for name in NIH_CORNERS)
        return Annotation(row["Image Index"], row["Finding Label"], box)
    size = _numbers(row.get(name) for name in ("image_height", "image_width"))
    box = _from_sides(row[name] for name in ("x", "y", "w", "h"))
    return Annotation(row["dicom_id"], row["category_name"], box, size=(int(size[0]), int(size[1])) if size else None)


def _numbers(cells) -> tuple[float, ...] | None:
    try:
        return tuple(float(cell) for cell in cells)
    except (TypeError, ValueError):
        return None


def _from_sides(cells) -> tuple[float, float, float, float] | None:
    numbers = _numbers(cells)
    if numbers is None:
        return None
    x, y, width, height = numbers
    return x, y, x + width, y + height


def _coco(key: str, path: Path) -> tuple[list[Annotation], set[str]]:
    try:
        with open(path, encoding="utf-8") as file:
            held = json.load(file)
        labels = {row["id"]: row["name"] for row in held["categories"]}
        images = {row["id"]: row for row in held["images"]}
        found = [_annotation(row, images[row["image_id"]], labels[row["category_id"]]) for row in held["annotations"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{key} is {str(path)!r}, which is no whole COCO JSON ({what}): check it") from None
    return found, {row["file_name"] for row in images.values()}


def _annotation(row: dict, image: dict, label: str) -> Annotation:
    size = (int(image["height"]), int(image["width"])) if image.get("height") and image.get("width") else None
    box = _from_sides(row["bbox"]) if row.get("bbox") else None
    return Annotation(image["file_name"], label, box, row.get("segmentation"), size=size)


def _release(key: str, path: Path) -> list[Annotation]:
    """Return the masks of the authors' release, a folder, each distinct one once; its negatives are no regions."""
    try:
        held = json.loads((path / RELEASE_JSON).read_text(encoding="utf-8"))
        found = {
            (entry["dicom_id"], pair["target"], pair["seg_mask_path"]): None
            for studies in held.values()
            for entry in studies.values()
            for pairs in entry["instruction_answer_pairs"].values()
            for pair in pairs
            if pair.get("seg_mask_path")
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise UserError(f"{key} is {str(path)!r}, which holds no whole {RELEASE_JSON} ({what}): check it") from None
    return [Annotation(image, target, drawn=path / RELEASE_MASKS / name) for image, target, name in found]


def polygons(drawn: list[list[float]], shape: tuple[int, int]) -> np.ndarray:
    """Return the union of polygons [x1, y1, x2, y2, …], bool ``shape``: the pixels whose centres lie inside one."""
    mask = np.zeros(shape, bool)
    for flat in drawn:
        points = np.asarray(flat, np.float64).reshape(-1, 2)
        for y in range(shape[0]):
            for start, end in _spans(points, y + 0.5):
                first, last = (int(np.clip(np.ceil(x - 0.5), 0, shape[1])) for x in (start, end))
                mask[y, first:last] = True
    return mask


def _spans(points: np.ndarray, y: float) -> Iterator[tuple[float, float]]:
    """Yield where a level line lies inside a polygon (even-odd)."""
    (x1, y1), (x2, y2) = points.T, np.roll(points, -1, axis=0).T
    crosses = (y1 <= y) != (y2 <= y)
    x = np.sort(x1[crosses] + (y - y1[crosses]) * (x2 - x1)[crosses] / (y2 - y1)[crosses])
    yield from zip(x[::2].tolist(), x[1::2].tolist(), strict=True)
