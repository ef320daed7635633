"""Sources of boxes with names: vindr (train and test), and the files nih, rsna and coco; readers' boxes are fused."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cxr.annotations.box_table import corners
from cxr.annotations.reading import Annotation, image_name
from cxr.annotations.reading import read as read_annotations
from cxr.annotations.tabular import NO_FINDING
from cxr.annotations.vindr import CLASSES
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.user_tables import read_frame
from cxr.dicom.files import Rejected, shown
from cxr.geometry.affine import boxes_to_upright
from cxr.geometry.fusion import fuse_groups, in_order
from cxr.geometry.turns import UPRIGHT, Turn
from cxr.imaging.cohort.header import Header, read_header
from cxr.imaging.cohort.split import split_name, subject_splits
from cxr.radvlm.sources import image_labels
from cxr.radvlm.sources.facts import BOX, FUSED, IMAGES, NAMELESS, Held, add_boxes, box_facts, clean
from cxr.radvlm.sources.options import ReadOptions

VINDR = {"train": ("annotations/annotations_train.csv", "annotations_train.csv", "train.csv"),
         "test": ("annotations/annotations_test.csv", "annotations_test.csv")}  # fmt: skip
"""{split: where its table may lie}; the last of train is Kaggle's."""
ENDINGS = (
    "",
    *(case(ending) for ending in (".dicom", ".dcm", ".png", ".jpg", ".jpeg") for case in (str.lower, str.upper)),
)


@dataclass(frozen=True)
class Found:
    """An image of a source: its name, its split, its boxes with names and readers, and where its file may lie."""

    image_id: str
    split: str
    regions: list[Annotation]
    paths: Sequence[Path]


def read_vindr(options: ReadOptions) -> Held:
    """Return the images with their boxes, and the labels of whole images where the folder has them.

    Raises UserError for a folder without a table of boxes.
    """
    held, images = Held(), []
    for split, names in VINDR.items():
        path = next((one for name in names if (one := _packed(options.folder / name))), None)
        if path is None:
            continue
        regions, seen = read_annotations(options.key, path, "vindr")
        folders = (options.pictures / split, options.pictures)
        images += _images(regions, seen, lambda image, split=split: split, folders)
        _count_rows(held, options.key, path)
    if not images:
        raise UserError(
            f"{options.key}: {options.folder} has neither {VINDR['train'][0]} nor {VINDR['train'][-1]}: "
            "give the folder of VinDr-CXR or of VinBigData"
        )
    _tell_unknown(held, (region.label for one in images for region in one.regions))
    _add(held, options, images)
    for split, names in image_labels.FILES.items():
        if path := next((one for name in names if (one := _packed(options.folder / name))), None):
            image_labels.add_image_labels(held, options.key, split, path)
    return held


def _count_rows(held: Held, key: str, path: Path) -> None:
    """Count the rows of a table: of boxes, and of readers who saw none."""
    names = read_frame(path, key, ("class_name",))["class_name"].str.to_lowercase()
    held.rows[BOX] += len(names)
    held.gone[BOX, "no_finding"] += int(names.is_in(NO_FINDING).sum())


def _tell_unknown(held: Held, labels: Iterable[str]) -> None:
    """Count the boxes of each class that VinDr-CXR is not known to have; they are kept under their own names."""
    unknown = Counter(label for label in labels if label.strip() and label not in CLASSES)
    for label, number in sorted(unknown.items()):
        held.counts[f"unknown_label: {shown(label)}"] += number
    if unknown:
        log.warning("%d classes are none of VinDr-CXR's, their boxes are kept: see counts.tsv", len(unknown))


def read_box_file(options: ReadOptions) -> Held:
    """Return the images of a file of boxes in a format of ``agreement``; without a split, it is drawn by subject."""
    regions, seen = read_annotations(options.key, options.folder, options.source["format"])
    by_table = {one.image: split_name(one.split) or "" for one in regions if one.split}
    without = ((subject_of(image, options), "") for image in seen if not by_table.get(image))
    by_hash = subject_splits(without, options.shares, options.seed)

    def split_of(image: str) -> str:
        return by_table.get(image) or by_hash[subject_of(image, options)]

    folder = Path(options.source["pictures"]) if options.source["pictures"] else options.folder.parent
    held = Held()
    held.rows[BOX] = len(regions)
    _add(held, options, _images(regions, seen, split_of, (folder, folder / "images")))
    return held


def subject_of(image: str, options: ReadOptions) -> str:
    """Return an image's subject: the first group of the setting's expression, or the image itself."""
    found = re.search(options.source["subject"], image) if options.source["subject"] else None
    return (found and found.group(1)) or image_name("{stem}", image)


def fused(
    regions: Sequence[tuple[str, str, str, np.ndarray]], sizes: Mapping, iou: float, decimals: int
) -> list[tuple]:
    """Return (image, name, box) of the fused boxes of (image, name, reader, box), by image and name.

    ``sizes``: {image: (rows, columns)}; corners are rounded to ``decimals`` of the unit square where the size is known.
    The result does not depend on the order of the regions.
    """
    if not regions:
        return []
    names = sorted({(image, name) for image, name, _, _ in regions})
    number = {name: place for place, name in enumerate(names)}
    group = np.array([number[image, name] for image, name, _, _ in regions])
    boxes = np.array([box for *_, box in regions], np.float64)
    order = in_order(boxes, group, np.array([reader for _, _, reader, _ in regions]))
    found = fuse_groups(boxes[order], group[order], iou)
    of = np.empty(len(found.boxes), np.int64)
    of[found.member_of[found.member_of >= 0]] = group[order][found.member_of >= 0]
    result = []
    for place, box in zip(of, found.boxes, strict=True):
        image, name = names[place]
        rows, columns = sizes.get(image) or (None, None)
        if rows and columns:
            scale = np.array([columns, rows, columns, rows], np.float64)
            box = np.round(box / scale, decimals) * scale
        result.append((image, name, box))
    return result


def _packed(path: Path) -> Path | None:
    return next((one for one in (path, path.with_name(f"{path.name}.gz")) if one.is_file()), None)


def _images(regions: Iterable[Annotation], seen: Iterable[str], split_of, folders: Sequence[Path]) -> list[Found]:
    held: dict[str, list[Annotation]] = {image: [] for image in sorted(seen)}
    for one in regions:
        held.setdefault(one.image, []).append(one)
    return [
        Found(
            image,
            split_of(image),
            of,
            [folder / f"{name}{ending}" for folder in folders for name in _spellings(image) for ending in ENDINGS],
        )
        for image, of in sorted(held.items())
    ]


def _spellings(image: str) -> list[str]:
    """Return an image's name as it is, with the separators of this system, and in both forms of its accents."""
    plain = image.replace("\\", "/")
    return list(dict.fromkeys([image, plain, *(unicodedata.normalize(form, plain) for form in ("NFC", "NFD"))]))


def _add(held: Held, options: ReadOptions, images: Sequence[Found]) -> None:
    """Add images with their boxes; one whose picture is missing or cannot be read is left out with its boxes."""
    sizes: dict[str, tuple[int, int]] = {}
    readers: list[tuple[str, str, str, np.ndarray]] = []
    several = any(region.reader for one in images for region in one.regions)
    held.rows[IMAGES] += len(images)
    for one in images:
        held.counts["images in tables"] += 1
        held.counts["table rows"] += len(one.regions)
        image_id = image_name("{stem}", one.image_id)
        try:
            path, header = _header(one)
        except Rejected as rejected:
            _leave_out(held, rejected.reason, image_id, one.regions, rejected.detail)
            continue
        stored, turn = header.size, header.turn
        size = turn.shape(stored)
        drawn = {region.size for region in one.regions if region.size}
        reason = "duplicate_image" if image_id in sizes else "shape_mismatch" if drawn - {stored} else ""
        if reason:
            _leave_out(held, reason, image_id, one.regions)
            continue
        sizes[image_id] = size
        regions = [_upright(region, turn, stored) for region in one.regions if region.label.strip()]
        for _ in range(len(one.regions) - len(regions)):
            held.leave_out("unknown_label", image_id, detail=NAMELESS, of=BOX)
        subject = subject_of(one.image_id, options)
        held.images.append(_image(image_id, subject, one.split, size, path, options.name))
        if several and one.split in options.fusion["splits"]:
            readers += _of_readers(held, image_id, regions, size, options.min_box)
        else:
            _as_they_are(held, image_id, regions, size, options.min_box)
    held.kept.update({IMAGES: len(held.images), BOX: len(held.facts)})
    for image_id, name, box in fused(readers, sizes, options.fusion["iou"], options.fusion["decimals"]):
        held.kept[FUSED] += add_boxes(held, image_id, BOX, name, box[None], sizes[image_id], options.min_box, of=FUSED)
        held.rows[FUSED] += 1
    held.counts["fused boxes"] += held.rows[FUSED]


def _leave_out(held: Held, reason: str, image_id: str, regions: Sequence[Annotation], detail: str = "") -> None:
    """Leave an image out with all its boxes: a row of each, or one of an image without."""
    held.gone[IMAGES, reason] += 1
    for _ in regions:
        held.leave_out(reason, image_id, detail=detail, of=BOX)
    if not regions:
        held.leave_out(reason, image_id, detail=detail)


def _of_readers(held: Held, image_id: str, regions: Sequence[Annotation], size: tuple, least: float) -> list[tuple]:
    """Add each reader's boxes to the facts, with the reader's name, and return those that can be fused."""
    found = []
    for one in regions:
        box = np.array([corners(one) or (np.nan,) * 4], np.float64)
        tidy = clean(box, np.array([size], np.float64), least)
        held.counts["boxes with swapped corners"] += tidy.swapped
        held.counts["boxes clipped"] += tidy.clipped
        if not tidy.area[0]:
            held.leave_out("no_area", image_id, detail=one.label, of=BOX)
            continue
        reader = one.reader or "reader"
        held.facts += box_facts(image_id, BOX, one.label, tidy.boxes, reader=reader)
        found.append((image_id, one.label, reader, tidy.boxes[0]))
    return found


def _as_they_are(held: Held, image_id: str, regions: Sequence[Annotation], size: tuple, least: float) -> None:
    by_name: dict[str, list] = {}
    for one in regions:
        by_name.setdefault(one.label, []).append(corners(one) or (np.nan,) * 4)
    for name, boxes in sorted(by_name.items()):
        add_boxes(held, image_id, BOX, name, np.array(boxes, np.float64), size, least)


def _upright(region: Annotation, turn: Turn, stored: tuple[int, int]) -> Annotation:
    """Return a region with its box in pixels of the upright image; it was drawn on the image as it is stored."""
    if turn == UPRIGHT or (box := corners(region)) is None:
        return region
    (upright,) = boxes_to_upright(np.array(box, np.float64), turn, stored).tolist()
    return replace(region, box=tuple(upright), drawn=None, size=turn.shape(stored))


def _header(one: Found) -> tuple[Path, Header]:
    """Return the file of an image and its header, with a size. Raises Rejected if it is missing or cannot be read."""
    path = next((path for path in one.paths if path.is_file()), None)
    if path is None:
        raise Rejected("missing_file")
    header = read_header(str(path))
    if header.size is None:
        raise Rejected("undecodable", "the header tells no size")
    return path, header


def _image(image_id: str, subject: str, split: str, size: tuple[int, int], path: Path, name: str) -> dict:
    return {
        "image_id": image_id, "study_id": image_id, "subject_id": subject, "split": split, "view": None, "sex": None,
        "rows": size[0], "columns": size[1], "path": str(path), "frames": name,
    }  # fmt: skip
