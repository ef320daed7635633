"""Sources of kind ``folder`` (a table of images with masks) and of kind ``boxes`` (a table of images with boxes)."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cxr.base.errors import UserError
from cxr.base.ids import clean_id
from cxr.base.jobs import log
from cxr.base.user_paths import PathFinder, UserPath
from cxr.base.user_tables import listed_lines, read_sheet
from cxr.base.vocabulary import SPLITS
from cxr.dicom.files import Rejected
from cxr.imaging.cohort.split import split_name
from cxr.medground.sources import pixels
from cxr.medground.sources.image import Image

REQUIRED = {
    "folder": ("image_path", "mask_path", "split"),
    "boxes": ("image_path", "split", "x", "y", "w", "h", "class"),
}
"""{kind of source: required columns of its manifest}."""
IDS = ("image_id", "subject_id")
OPTIONAL = (*IDS, "mask_path", "class", "domain", "licence", "description")
WORDS = ("image_path", "split")  # columns whose cells are single words, unless paths have blanks
PATHS = ("image_path", "mask_path")


@dataclass(frozen=True)
class Row:
    """A row of the manifest. ``line``: line number. ``cells``: {column: text}. ``files``: {path column: file}."""

    line: int
    cells: Mapping[str, str]
    files: Mapping[str, UserPath]

    def __getitem__(self, column: str) -> str:
        return self.cells.get(column, "")

    def file(self, column: str) -> Path:
        """Return the path in the column ``image_path`` or ``mask_path``. Raises Rejected if the file is missing."""
        file, role = self.files[column], "the picture" if column == "image_path" else "the mask"
        if not Path(file.path).is_file():
            raise Rejected("missing_file", f"{role}: {file.problem}" if file.problem else role)
        return Path(file.path)


def read_manifest(name: str, kind: str, path: Path) -> dict[str, list[Row]]:
    """Return {image id: rows of the image} from the manifest ``path``, sorted by id. ``name`` is the name of the
    source, and ``kind`` is ``folder`` or ``boxes``. Raises UserError for an invalid manifest."""
    key = f"medground.sources.sets.{name}.manifest"
    columns = (*REQUIRED[kind], *OPTIONAL)
    sheet = read_sheet(path, key, columns, ids=IDS, words=WORDS, single_lines=columns[:-1])
    sheet.require(REQUIRED[kind])
    table = list(sheet.records())
    finder = PathFinder(path.parent)
    files = {column: finder.find_all(cells.get(column, "") for _, cells in table) for column in PATHS}
    rows_of: dict[str, list[Row]] = defaultdict(list)
    subjects: dict[str, tuple[str, int]] = {}
    differences: dict[str, list[int]] = defaultdict(list)
    for line, cells in table:
        split = split_name(cells["split"])
        if not split:
            raise UserError(f"{key}: line {line} has the split {cells['split']!r}: use {', '.join(SPLITS)}")
        row = Row(line, cells | {"split": split}, {column: files[column][cells.get(column, "")] for column in PATHS})
        for column, file in row.files.items():
            is_absolute = Path(row[column]).is_absolute() or row[column].lower().startswith("file:")
            if row[column] and not is_absolute and not Path(file.path).resolve().is_relative_to(path.parent.resolve()):
                raise UserError(f"{key}: line {line}: {column} is outside the manifest's folder: give an absolute path")
            if file.differences:
                differences[f"{column} differs from the existing file in {', '.join(file.differences)}"].append(line)
        image = row.files["image_path"].path
        image_id = row["image_id"] or clean_id(Path(image.replace("\\", "/")).stem)
        same = rows_of[image_id]
        if same and (image, split) != (same[0].files["image_path"].path, same[0]["split"]):
            raise UserError(f"{key}: lines {same[0].line} and {line} give {image_id!r} two files or splits: keep one")
        if kind == "folder" and any(row["class"] == earlier["class"] for earlier in same):
            raise UserError(f"{key}: line {line} repeats the class {row['class']!r} of {image_id!r}: remove a line")
        same.append(row)
        subject = row["subject_id"] or image_id
        first_split, first_line = subjects.setdefault(subject, (split, line))
        if first_split != split:
            lines = f"lines {first_line} and {line}"
            raise UserError(f"{key}: {lines} put the subject {subject!r} into {first_split} and {split}: use one split")
    for note, differing_lines in differences.items():
        log.warning("%s: %s, and that file is used: %s", key, note, listed_lines(differing_lines))
    return dict(sorted(rows_of.items()))


def read_folder_image(image_id: str, rows: list[Row], options: Mapping) -> Image:
    """Read an image with its masks or boxes. ``rows``: its rows of the manifest. ``options``: settings of the source.
    Raises Rejected if a file or row cannot be used."""
    first = rows[0]
    picture = pixels.read_image(first.file("image_path"))
    masks, instances, boxes = {}, None, None
    if options["kind"] == "boxes":
        boxes = _boxes(rows, picture.shape[:2], options["classes"])
    else:
        for row in rows:
            path, shape = row.file("mask_path"), picture.shape[:2]
            label = row["class"] or next(iter(options["classes"]))
            if options["mask_kind"] == "instances":
                values = pixels.match_image_size(pixels.read_mask(path), shape, options["resize_masks"])
                instances, masks[label] = pixels.instance_numbers(values), values > 0
            else:
                masks |= pixels.read_class_masks(path, shape, label, options)
        if unknown := sorted(masks.keys() - options["classes"].keys()):
            raise Rejected("unknown_label", f"the class {unknown[0]!r} is not in the source's classes")
        pixels.refuse_uniform(masks)
    return Image(
        image_id, first["subject_id"] or image_id, first["split"], picture, masks, instances, boxes,
        domain=first["domain"] or options["domain"], licence=first["licence"] or options["licence"],
        description=first["description"], path=first.files["image_path"].path,
    )  # fmt: skip


def _boxes(rows: list[Row], shape: tuple[int, int], classes: Mapping) -> dict[str, np.ndarray]:
    boxes_by_class: dict[str, list] = defaultdict(list)
    for row in rows:
        try:
            x, y, w, h = (float(row[side]) for side in ("x", "y", "w", "h"))
        except ValueError:
            raise Rejected("bad_row", f"line {row.line} has no number in x, y, w or h") from None
        if not (w > 0 and h > 0 and 0 <= x < x + w <= shape[1] + 1 and 0 <= y < y + h <= shape[0] + 1):
            raise Rejected("bad_row", f"line {row.line} has a box that is empty or outside its image")
        if row["class"] not in classes:
            raise Rejected("unknown_label", f"the class {row['class']!r} is not in the source's classes")
        boxes_by_class[row["class"]].append((x, y, x + w, y + h))
    return {label: np.array(boxes) for label, boxes in boxes_by_class.items()}
