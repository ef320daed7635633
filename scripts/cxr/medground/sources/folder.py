"""Sources of the kinds folder and boxes: a CSV manifest of images with masks or with boxes."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np

from cxr.base.errors import UserError
from cxr.base.vocabulary import SPLITS
from cxr.medground.sources.image import Image, Refused, to_grey8

NEEDED = {"folder": ("image_path", "mask_path", "split"), "boxes": ("image_path", "split", "x", "y", "w", "h", "class")}
"""Columns that a manifest must have."""

COLOURS = 3
"""Of a coloured mask, those that the reason names."""
PROPORTIONS = 0.01
"""How far the proportions of a mask may be from its picture's where it is resized."""


@dataclass(frozen=True)
class Row:
    """A row of the manifest. ``line``: its number as a spreadsheet counts."""

    line: int
    cells: Mapping[str, str]

    def __getitem__(self, name: str) -> str:
        return (self.cells.get(name) or "").strip()


def rows(name: str, kind: str, manifest: Path) -> dict[str, list[Row]]:
    """Return {image_id: its rows} of a manifest, sorted. Raises UserError in one sentence for a wrong manifest."""
    key = f"medground.sources.sets.{name}.manifest"
    try:
        with open(manifest, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            columns = next(reader, [])
            filled = ((line, cells) for line, cells in enumerate(reader, 2) if any(cell.strip() for cell in cells))
            held = [Row(line, dict(zip(columns, cells, strict=False))) for line, cells in filled]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"{key}: {manifest.name} cannot be read ({error}): give a CSV in UTF-8") from None
    if missing := [column for column in NEEDED[kind] if column not in columns]:
        raise UserError(f"{key}: {manifest.name} has no column {missing[0]!r}: add it")
    found: dict[str, list[Row]] = {}
    subjects: dict[str, tuple[str, int]] = {}
    for row in held:
        _check(key, row, manifest)
        image_id = row["image_id"] or Path(row["image_path"]).stem
        same = found.setdefault(image_id, [])
        if same and (row["image_path"], row["split"]) != (same[0]["image_path"], same[0]["split"]):
            raise UserError(f"{key}: rows {same[0].line} and {row.line} give {image_id!r} two files or splits: rename")
        if kind == "folder" and any(row["class"] == other["class"] for other in same):
            raise UserError(f"{key}: row {row.line} repeats the class {row['class']!r} of {image_id!r}: leave one out")
        same.append(row)
        subject = row["subject_id"] or image_id
        split, line = subjects.setdefault(subject, (row["split"], row.line))
        if split != row["split"]:
            raise UserError(
                f"{key}: rows {line} and {row.line} put {subject!r} into {split} and {row['split']}: use one"
            )
    return dict(sorted(found.items()))


def _check(key: str, row: Row, manifest: Path) -> None:
    if row["split"] not in SPLITS:
        raise UserError(f"{key}: row {row.line} has the split {row['split']!r}: use {', '.join(SPLITS)}")
    for column in ("image_path", "mask_path"):
        path = Path(row[column])
        inside = (manifest.parent / path).resolve().is_relative_to(manifest.parent.resolve())
        if row[column] and not path.is_absolute() and not inside:
            raise UserError(f"{key}: row {row.line} leaves the manifest's folder by {column}: give an absolute path")


def read_array(path: Path) -> np.ndarray:
    """Return the pixels of a PNG, JPEG, TIFF or NPY file as they are stored; colours in the order R, G, B.

    Raises Refused with missing_file or undecodable.
    """
    if not path.is_file():
        raise Refused("missing_file")
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        values = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_UNCHANGED)
    except (ValueError, cv2.error) as error:
        raise Refused("undecodable", str(error).splitlines()[0]) from None
    if values is None:
        raise Refused("undecodable")
    return values[..., 2::-1] if values.ndim == 3 and values.shape[2] >= 3 else values


def read_picture(path: Path, max_pixels: int) -> np.ndarray:
    """Return a picture uint8 (H, W, 3) from a DICOM file, or one that :func:`read_array` reads. Raises Refused.

    ``max_pixels``: of a DICOM file; a larger one is not decoded.
    """
    from cxr.medground.sources.dicom import dicom_grey, is_dicom  # heavy, and few sources need it

    values = dicom_grey(path, max_pixels) if is_dicom(path) else to_grey8(read_array(path))
    return np.ascontiguousarray(values if values.ndim == 3 else np.repeat(values[..., None], 3, axis=2))


def one_plane(values: np.ndarray) -> np.ndarray:
    """Return the one plane of a mask; of one in black and one colour, as a palette gives it, where it is coloured.

    Raises Refused for more colours.
    """
    if values.ndim == 2:
        return values
    if all((values[..., 0] == values[..., at]).all() for at in range(1, values.shape[2])):
        return values[..., 0]
    found = np.unique(values.reshape(-1, values.shape[2]), axis=0)
    if len(found) == 2 and not found[0].any():
        return values.any(axis=2).astype(np.uint8)
    shown = ", ".join(str(tuple(one)) for one in found[:COLOURS].tolist())
    raise Refused("unknown_label", f"the mask has {len(found)} colours, such as {shown}")


def of_picture(values: np.ndarray, shape: tuple[int, int], resize: str) -> np.ndarray:
    """Return a mask's values (H, W) in the size of its picture. ``resize``: none, or nearest.

    Raises Refused for a mask of another size; with ``nearest``, for one of other proportions (by more than 1 %).
    """
    if values.shape == shape:
        return values
    same = abs(values.shape[1] * shape[0] / (values.shape[0] * shape[1]) - 1) <= PROPORTIONS
    if resize != "nearest" or not same:
        raise Refused("shape_mismatch", f"mask {values.shape[::-1]}, picture {shape[::-1]}")
    plain = values.astype(np.float64) if values.dtype.kind not in "u" or values.dtype.itemsize > 2 else values
    return cv2.resize(plain, shape[::-1], interpolation=cv2.INTER_NEAREST_EXACT)


def binary(values: np.ndarray, threshold: float) -> np.ndarray:
    """Return a mask of two values as bool (H, W). Raises Refused where it has more values and no threshold is set."""
    found = np.unique(values)
    if threshold <= 0 and (len(found) > 2 or (len(found) == 2 and found[0] != 0)):
        raise Refused("unknown_label", f"the mask has {len(found)} values, {found[0]} to {found[-1]}")
    return values > threshold


def by_value(values: np.ndarray, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return {class: mask} of a mask whose values stand for classes. Raises Refused for a value without a name."""
    known = {float(value): name for value, name in names.items()}
    if unknown := sorted(set(np.unique(values).tolist()) - known.keys() - {0}):
        raise Refused("unknown_label", f"the value {unknown[0]} has no class")
    found: dict[str, np.ndarray] = {}
    for value, name in known.items():
        found[name] = found.get(name, np.zeros(values.shape, bool)) | (values == value)
    return found


def read_folder(name: str, options: Mapping, manifest: str) -> Iterator[tuple[str, Image | Refused]]:
    """Yield (image_id, image or why it cannot be used) of a manifest's images, in order of their ids."""
    path = Path(manifest)
    for image_id, held in rows(name, options["kind"], path).items():
        try:
            yield image_id, _image(image_id, held, options, path)
        except Refused as refused:
            yield image_id, refused


def _image(image_id: str, held: list[Row], options: Mapping, manifest: Path) -> Image:
    first = held[0]
    picture = read_picture(manifest.parent / first["image_path"], options["max_pixels"])
    masks, instances, boxes = {}, None, None
    default = next(iter(options["classes"]))
    if options["kind"] == "boxes":
        boxes = _boxes(held, picture.shape[:2], options["classes"])
    else:
        for row in held:
            values = one_plane(read_array(manifest.parent / row["mask_path"]))
            values = of_picture(values, picture.shape[:2], options["resize_masks"])
            label = row["class"] or default
            if options["mask_kind"] == "instances":
                instances = values.astype(np.uint16)
                masks[label] = values > 0
            elif options["mask_values"]:
                masks |= by_value(values, options["mask_values"])
            else:
                masks[label] = binary(values, options["mask_threshold"])
        if unknown := sorted(masks.keys() - options["classes"].keys()):
            raise Refused("unknown_label", f"the class {unknown[0]!r} is not one of the source's")
        if not any(mask.any() for mask in masks.values()):
            raise Refused("empty_mask")
        if any(mask.all() for mask in masks.values()):
            raise Refused("full_mask")
    return Image(
        image_id,
        first["subject_id"] or image_id,
        first["split"],
        picture,
        masks,
        instances,
        boxes,
        domain=first["domain"] or options["domain"],
        licence=first["licence"] or options["licence"],
        description=first["description"],
        path=str(manifest.parent / first["image_path"]),
    )


def _boxes(held: list[Row], shape: tuple[int, int], classes: Mapping) -> dict[str, np.ndarray]:
    found: dict[str, list] = {}
    for row in held:
        try:
            x, y, w, h = (float(row[side]) for side in ("x", "y", "w", "h"))
        except ValueError:
            raise Refused("bad_row", f"row {row.line} has no box") from None
        if not (w > 0 and h > 0 and 0 <= x < x + w <= shape[1] + 1 and 0 <= y < y + h <= shape[0] + 1):
            raise Refused("bad_row", f"row {row.line} has a box outside its picture")
        if row["class"] not in classes:
            raise Refused("unknown_label", f"the class {row['class']!r} is not one of the source's")
        found.setdefault(row["class"], []).append((x, y, x + w, y + h))
    return {label: np.array(boxes) for label, boxes in found.items()}
