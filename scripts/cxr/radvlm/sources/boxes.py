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
from cxr.geometry.fusion import fuse_groups, fusion_order
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
    records, images = Held(), []
    for split, names in VINDR.items():
        path = next((table_path for name in names if (table_path := _packed(options.folder / name))), None)
        if path is None:
            continue
        regions, image_names = read_annotations(options.key, path, "vindr")
        folders = (options.pictures / split, options.pictures)
        images += _images(regions, image_names, lambda image, split=split: split, folders)
        _count_rows(records, options.key, path)
    if not images:
        raise UserError(
            f"{options.key}: {options.folder} has neither {VINDR['train'][0]} nor {VINDR['train'][-1]}: "
            "give the folder of VinDr-CXR or of VinBigData"
        )
    _tell_unknown(records, (region.label for image in images for region in image.regions))
    _add(records, options, images)
    for split, names in image_labels.FILES.items():
        if path := next((table_path for name in names if (table_path := _packed(options.folder / name))), None):
            image_labels.add_image_labels(records, options.key, split, path)
    return records


def _count_rows(records: Held, key: str, path: Path) -> None:
    """Count the rows of a table: of boxes, and of readers who saw none."""
    names = read_frame(path, key, ("class_name",))["class_name"].str.to_lowercase()
    records.rows[BOX] += len(names)
    records.gone[BOX, "no_finding"] += int(names.is_in(NO_FINDING).sum())


def _tell_unknown(records: Held, labels: Iterable[str]) -> None:
    """Count the boxes of each class that VinDr-CXR is not known to have; they are kept under their own names."""
    unknown = Counter(label for label in labels if label.strip() and label not in CLASSES)
    for label, number in sorted(unknown.items()):
        records.counts[f"unknown_label: {shown(label)}"] += number
    if unknown:
        log.warning("%d classes are none of VinDr-CXR's, their boxes are kept: see counts.tsv", len(unknown))


def read_box_file(options: ReadOptions) -> Held:
    """Return the images of a file of boxes in a format of ``agreement``; without a split, it is drawn by subject."""
    regions, image_names = read_annotations(options.key, options.folder, options.source["format"])
    by_table = {region.image: split_name(region.split) or "" for region in regions if region.split}
    without = ((subject_of(image, options), "") for image in image_names if not by_table.get(image))
    by_hash = subject_splits(without, options.shares, options.seed)

    def split_of(image: str) -> str:
        return by_table.get(image) or by_hash[subject_of(image, options)]

    folder = Path(options.source["pictures"]) if options.source["pictures"] else options.folder.parent
    records = Held()
    records.rows[BOX] = len(regions)
    _add(records, options, _images(regions, image_names, split_of, (folder, folder / "images")))
    return records


def subject_of(image: str, options: ReadOptions) -> str:
    """Return an image's subject: the first group of the setting's expression, or the image itself."""
    match = re.search(options.source["subject"], image) if options.source["subject"] else None
    return (match and match.group(1)) or image_name("{stem}", image)


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
    order = fusion_order(boxes, group, np.array([reader for _, _, reader, _ in regions]))
    fused_boxes = fuse_groups(boxes[order], group[order], iou)
    group_of_box = np.empty(len(fused_boxes.boxes), np.int64)
    group_of_box[fused_boxes.member_of[fused_boxes.member_of >= 0]] = group[order][fused_boxes.member_of >= 0]
    image_boxes = []
    for place, box in zip(group_of_box, fused_boxes.boxes, strict=True):
        image, name = names[place]
        rows, columns = sizes.get(image) or (None, None)
        if rows and columns:
            scale = np.array([columns, rows, columns, rows], np.float64)
            box = np.round(box / scale, decimals) * scale
        image_boxes.append((image, name, box))
    return image_boxes


def _packed(path: Path) -> Path | None:
    return next((candidate for candidate in (path, path.with_name(f"{path.name}.gz")) if candidate.is_file()), None)


def _images(
    regions: Iterable[Annotation], image_names: Iterable[str], split_of, folders: Sequence[Path]
) -> list[Found]:
    regions_by_image: dict[str, list[Annotation]] = {image: [] for image in sorted(image_names)}
    for region in regions:
        regions_by_image.setdefault(region.image, []).append(region)
    return [
        Found(
            image,
            split_of(image),
            image_regions,
            [folder / f"{name}{ending}" for folder in folders for name in _spellings(image) for ending in ENDINGS],
        )
        for image, image_regions in sorted(regions_by_image.items())
    ]


def _spellings(image: str) -> list[str]:
    """Return an image's name as it is, with the separators of this system, and in both forms of its accents."""
    plain = image.replace("\\", "/")
    return list(dict.fromkeys([image, plain, *(unicodedata.normalize(form, plain) for form in ("NFC", "NFD"))]))


def _add(records: Held, options: ReadOptions, images: Sequence[Found]) -> None:
    """Add images with their boxes; one whose picture is missing or cannot be read is left out with its boxes."""
    sizes: dict[str, tuple[int, int]] = {}
    readers: list[tuple[str, str, str, np.ndarray]] = []
    several = any(region.reader for image in images for region in image.regions)
    records.rows[IMAGES] += len(images)
    for image in images:
        records.counts["images in tables"] += 1
        records.counts["table rows"] += len(image.regions)
        image_id = image_name("{stem}", image.image_id)
        try:
            path, header = _header(image)
        except Rejected as rejected:
            _leave_out(records, rejected.reason, image_id, image.regions, rejected.detail)
            continue
        stored, turn = header.size, header.turn
        size = turn.shape(stored)
        annotated_sizes = {region.size for region in image.regions if region.size}
        reason = "duplicate_image" if image_id in sizes else "shape_mismatch" if annotated_sizes - {stored} else ""
        if reason:
            _leave_out(records, reason, image_id, image.regions)
            continue
        sizes[image_id] = size
        regions = [_upright(region, turn, stored) for region in image.regions if region.label.strip()]
        for _ in range(len(image.regions) - len(regions)):
            records.leave_out("unknown_label", image_id, detail=NAMELESS, record_kind=BOX)
        subject = subject_of(image.image_id, options)
        records.images.append(_image(image_id, subject, image.split, size, path, options.name))
        if several and image.split in options.fusion["splits"]:
            readers += _of_readers(records, image_id, regions, size, options.min_box)
        else:
            _as_they_are(records, image_id, regions, size, options.min_box)
    records.kept.update({IMAGES: len(records.images), BOX: len(records.facts)})
    for image_id, name, box in fused(readers, sizes, options.fusion["iou"], options.fusion["decimals"]):
        records.kept[FUSED] += add_boxes(
            records, image_id, BOX, name, box[None], sizes[image_id], options.min_box, record_kind=FUSED
        )
        records.rows[FUSED] += 1
    records.counts["fused boxes"] += records.rows[FUSED]


def _leave_out(records: Held, reason: str, image_id: str, regions: Sequence[Annotation], detail: str = "") -> None:
    """Leave an image out with all its boxes: a row of each, or one of an image without."""
    records.gone[IMAGES, reason] += 1
    for _ in regions:
        records.leave_out(reason, image_id, detail=detail, record_kind=BOX)
    if not regions:
        records.leave_out(reason, image_id, detail=detail)


def _of_readers(records: Held, image_id: str, regions: Sequence[Annotation], size: tuple, least: float) -> list[tuple]:
    """Add each reader's boxes to the facts, with the reader's name, and return those that can be fused."""
    reader_boxes = []
    for region in regions:
        box = np.array([corners(region) or (np.nan,) * 4], np.float64)
        tidy = clean(box, np.array([size], np.float64), least)
        records.counts["boxes with swapped corners"] += tidy.swapped
        records.counts["boxes clipped"] += tidy.clipped
        if not tidy.area[0]:
            records.leave_out("no_area", image_id, detail=region.label, record_kind=BOX)
            continue
        reader = region.reader or "reader"
        records.facts += box_facts(image_id, BOX, region.label, tidy.boxes, reader=reader)
        reader_boxes.append((image_id, region.label, reader, tidy.boxes[0]))
    return reader_boxes


def _as_they_are(records: Held, image_id: str, regions: Sequence[Annotation], size: tuple, least: float) -> None:
    by_name: dict[str, list] = {}
    for region in regions:
        by_name.setdefault(region.label, []).append(corners(region) or (np.nan,) * 4)
    for name, boxes in sorted(by_name.items()):
        add_boxes(records, image_id, BOX, name, np.array(boxes, np.float64), size, least)


def _upright(region: Annotation, turn: Turn, stored: tuple[int, int]) -> Annotation:
    """Return a region with its box in pixels of the upright image; it was drawn on the image as it is stored."""
    if turn == UPRIGHT or (box := corners(region)) is None:
        return region
    (upright,) = boxes_to_upright(np.array(box, np.float64), turn, stored).tolist()
    return replace(region, box=tuple(upright), drawn=None, size=turn.shape(stored))


def _header(image: Found) -> tuple[Path, Header]:
    """Return the file of an image and its header, with a size. Raises Rejected if it is missing or cannot be read."""
    path = next((path for path in image.paths if path.is_file()), None)
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
