"""Sources of named boxes: vindr (train and test), nih, rsna and coco; boxes of several readers are fused."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl

from cxr.annotations.box_table import region_box
from cxr.annotations.regions import Annotation, image_name, read_annotations
from cxr.annotations.tabular import NO_FINDING
from cxr.annotations.vindr import CLASSES, read_labels
from cxr.annotations.vindr import LABELS as KNOWN
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.user_tables import read_frame
from cxr.dicom.files import Rejected, quote_value
from cxr.geometry.affine import boxes_to_upright
from cxr.geometry.fusion import fuse_groups, fusion_order
from cxr.geometry.turns import UPRIGHT, Turn
from cxr.imaging.cohort.header import Header, read_header
from cxr.imaging.cohort.split import split_name, subject_splits
from cxr.radvlm.labels import ABSENT, PRESENT
from cxr.radvlm.sources.facts import (
    BOX,
    FUSED,
    IMAGES,
    LABEL,
    LABELS,
    UNNAMED_BOX,
    ReadOptions,
    SourceRecords,
    add_boxes,
    box_facts,
    clean_boxes,
    complete_facts,
)

VINDR_TABLES = {"train": ("annotations/annotations_train.csv", "annotations_train.csv", "train.csv"),
         "test": ("annotations/annotations_test.csv", "annotations_test.csv")}  # fmt: skip
"""{split: possible paths of its table}; the last path of train is Kaggle's."""
LABEL_TABLES = {"train": ("annotations/image_labels_train.csv", "image_labels_train.csv"),
         "test": ("annotations/image_labels_test.csv", "image_labels_test.csv")}  # fmt: skip
"""{split: possible paths of its table of image labels}."""
CONSENSUS = "consensus"
"""Reader of a table without reader ids."""
CELLS = {"1": PRESENT, "1.0": PRESENT, "0": ABSENT, "0.0": ABSENT}
FUSION_IOU = 0.1
"""IoU above which boxes of several readers of one class are fused (authors' code)."""
FUSION_DECIMALS = 3
"""Decimals of fused corners on the unit square (authors' code)."""
FUSED_SPLITS = ("train", "validate")
"""Splits whose boxes are fused; the test boxes of VinDr-CXR are a consensus."""
ENDINGS = (
    "",
    *(case(ending) for ending in (".dicom", ".dcm", ".png", ".jpg", ".jpeg") for case in (str.lower, str.upper)),
)


@dataclass(frozen=True)
class SourceImage:
    """An image of a source; regions: its named boxes with their readers; paths: candidate paths of its file."""

    image_id: str
    split: str
    regions: list[Annotation]
    paths: Sequence[Path]


def read_vindr(options: ReadOptions) -> SourceRecords:
    """Read the images with their boxes, and image labels if the folder has them.

    Raises UserError for a folder without a box table.
    """
    records, images = SourceRecords(), []
    for split, path in _find_tables(options.folder, VINDR_TABLES):
        regions, image_names = read_annotations(options.key, path, "vindr")
        folders = (options.pictures / split, options.pictures)
        images += _group_by_image(regions, image_names, lambda image, split=split: split, folders)
        names = read_frame(path, options.key, ("class_name",))["class_name"].str.to_lowercase()
        records.num_rows[BOX] += len(names)
        records.num_excluded[BOX, "no_finding"] += int(names.is_in(NO_FINDING).sum())  # readers who saw none
    if not images:
        raise UserError(
            f"{options.key}: {options.folder} has neither {VINDR_TABLES['train'][0]} nor {VINDR_TABLES['train'][-1]}: "
            "give the folder of VinDr-CXR or of VinBigData"
        )
    labels = (region.label for image in images for region in image.regions)
    _count_unknown(records, Counter(name for name in labels if name.strip() and name not in CLASSES), "classes")
    _add_images(records, options, images)
    for split, path in _find_tables(options.folder, LABEL_TABLES):
        add_image_labels(records, options.key, split, path)
    return records


def _count_unknown(records: SourceRecords, number_by_name: Mapping[str, int], noun: str) -> None:
    """Count boxes or labels of names unknown to VinDr-CXR; they are kept under their own names."""
    for name, number in sorted(number_by_name.items()):
        records.counts[f"unknown_label: {quote_value(name)}"] += number
    if number_by_name:
        log.warning("%d %s are unknown to VinDr-CXR and kept: see counts.tsv", len(number_by_name), noun)


def read_box_file(options: ReadOptions) -> SourceRecords:
    """Read a box file in a format of ``agreement``; images without a split get one by subject."""
    regions, image_names = read_annotations(options.key, options.folder, options.source["format"])
    by_table = {region.image: split_name(region.split) or "" for region in regions if region.split}
    without = ((subject_of(image, options), "") for image in image_names if not by_table.get(image))
    by_hash = subject_splits(without, options.shares, options.seed)

    def split_of(image: str) -> str:
        return by_table.get(image) or by_hash[subject_of(image, options)]

    folder = Path(options.source["pictures"]) if options.source["pictures"] else options.folder.parent
    records = SourceRecords()
    records.num_rows[BOX] = len(regions)
    _add_images(records, options, _group_by_image(regions, image_names, split_of, (folder, folder / "images")))
    return records


def subject_of(image: str, options: ReadOptions) -> str:
    """Return an image's subject: the first group of the ``subject`` pattern, else the image itself."""
    match = re.search(options.source["subject"], image) if options.source["subject"] else None
    return (match and match.group(1)) or image_name("{stem}", image)


def fuse_readers(
    regions: Sequence[tuple[str, str, str, np.ndarray]], sizes: Mapping, iou: float, decimals: int
) -> list[tuple]:
    """Fuse the readers' boxes (image, name, reader, box) and return (image, name, box), sorted by image and name.

    ``sizes``: {image: (rows, columns)}; where known, corners are rounded to ``decimals`` of the unit square. The result
    does not depend on the order of ``regions``.
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


def _find_tables(folder: Path, names_by_split: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Path]]:
    """Yield (split, first of its tables that is there), compressed or not."""
    for split, names in names_by_split.items():
        candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
        if (path := next(filter(Path.is_file, candidates), None)) is not None:
            yield split, path


def _group_by_image(
    regions: Iterable[Annotation], image_names: Iterable[str], split_of, folders: Sequence[Path]
) -> list[SourceImage]:
    regions_by_image: dict[str, list[Annotation]] = {image: [] for image in sorted(image_names)}
    for region in regions:
        regions_by_image.setdefault(region.image, []).append(region)
    return [
        SourceImage(image, split_of(image), image_regions, list(_candidate_paths(image, folders)))
        for image, image_regions in sorted(regions_by_image.items())
    ]


def _candidate_paths(image: str, folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the possible paths of an image: its name as it is, with system separators, and in NFC and NFD."""
    system_name = image.replace("\\", "/")
    forms = (unicodedata.normalize(form, system_name) for form in ("NFC", "NFD"))
    names = dict.fromkeys([image, system_name, *forms])
    return (folder / f"{name}{ending}" for folder in folders for name in names for ending in ENDINGS)


def _add_images(records: SourceRecords, options: ReadOptions, images: Sequence[SourceImage]) -> None:
    """Add images with their boxes; exclude images whose file is missing or unreadable, with their boxes."""
    sizes: dict[str, tuple[int, int]] = {}
    readers: list[tuple[str, str, str, np.ndarray]] = []
    several = any(region.reader for image in images for region in image.regions)
    records.num_rows[IMAGES] += len(images)
    for image in images:
        records.counts["images in tables"] += 1
        records.counts["table rows"] += len(image.regions)
        image_id = image_name("{stem}", image.image_id)
        try:
            path, header = _read_image_header(image)
        except Rejected as rejected:
            _exclude_image(records, rejected.reason, image_id, image.regions, rejected.detail)
            continue
        stored, turn = header.size, header.turn
        size = turn.shape(stored)
        annotated_sizes = {region.size for region in image.regions if region.size}
        reason = "duplicate_image" if image_id in sizes else "shape_mismatch" if annotated_sizes - {stored} else ""
        if reason:
            _exclude_image(records, reason, image_id, image.regions)
            continue
        sizes[image_id] = size
        regions = [_to_upright(region, turn, stored) for region in image.regions if region.label.strip()]
        num_unnamed = len(image.regions) - len(regions)
        records.exclude("unknown_label", image_id, detail=UNNAMED_BOX, record_kind=BOX, rows=num_unnamed)
        subject = subject_of(image.image_id, options)
        records.images.append({
            "image_id": image_id, "study_id": image_id, "subject_id": subject, "split": image.split, "view": None,
            "sex": None, "rows": size[0], "columns": size[1], "path": str(path), "frames": options.name,
        })  # fmt: skip
        if several and image.split in FUSED_SPLITS:
            readers += _add_reader_boxes(records, image_id, regions, size)
        else:
            boxes_by_name: dict[str, list] = {}
            for region in regions:
                boxes_by_name.setdefault(region.label, []).append(region_box(region) or (np.nan,) * 4)
            for name, boxes in sorted(boxes_by_name.items()):
                add_boxes(records, image_id, BOX, name, np.array(boxes, np.float64), size)
    records.num_kept.update({IMAGES: len(records.images), BOX: len(records.facts)})
    for image_id, name, box in fuse_readers(readers, sizes, FUSION_IOU, FUSION_DECIMALS):
        records.num_kept[FUSED] += add_boxes(
            records, image_id, BOX, name, box[None], sizes[image_id], record_kind=FUSED
        )
        records.num_rows[FUSED] += 1
    records.counts["fused boxes"] += records.num_rows[FUSED]


def _exclude_image(
    records: SourceRecords, reason: str, image_id: str, regions: Sequence[Annotation], detail: str = ""
) -> None:
    """Exclude an image: one row per box, or one row if it has none."""
    records.num_excluded[IMAGES, reason] += 1
    if regions:
        records.exclude(reason, image_id, detail=detail, record_kind=BOX, rows=len(regions))
    else:
        records.exclude(reason, image_id, detail=detail)


def _add_reader_boxes(records: SourceRecords, image_id: str, regions: Sequence[Annotation], size: tuple) -> list[tuple]:
    """Add each reader's boxes to the facts and return those that can be fused."""
    reader_boxes = []
    for region in regions:
        box = np.array([region_box(region) or (np.nan,) * 4], np.float64)
        tidy = clean_boxes(box, np.array([size], np.float64))
        records.counts["boxes with swapped corners"] += tidy.swapped
        records.counts["boxes clipped"] += tidy.clipped
        if not tidy.area[0]:
            records.exclude("no_area", image_id, detail=region.label, record_kind=BOX)
            continue
        reader = region.reader or "reader"
        records.facts += box_facts(image_id, BOX, region.label, tidy.boxes, reader=reader)
        reader_boxes.append((image_id, region.label, reader, tidy.boxes[0]))
    return reader_boxes


def _to_upright(region: Annotation, turn: Turn, stored: tuple[int, int]) -> Annotation:
    """Return a region, drawn on the stored image, in pixels of the upright image."""
    if turn == UPRIGHT or (box := region_box(region)) is None:
        return region
    (upright,) = boxes_to_upright(np.array(box, np.float64), turn, stored).tolist()
    return replace(region, box=tuple(upright), drawn=None, size=turn.shape(stored))


def _read_image_header(image: SourceImage) -> tuple[Path, Header]:
    """Return the path and header of an image. Raises Rejected if it is missing, unreadable or has no size."""
    path = next((path for path in image.paths if path.is_file()), None)
    if path is None:
        raise Rejected("missing_file")
    header = read_header(str(path))
    if header.size is None:
        raise Rejected("undecodable", "the header tells no size")
    return path, header


def add_image_labels(records: SourceRecords, key: str, split: str, path: Path) -> None:
    """Add VinDr-CXR's image labels: those of each reader (train), or the consensus (test).

    Each is a fact with a reader, so no task uses it: global diagnoses have no box. Rows of images that were not read,
    and second rows of a reader on an image, are excluded. Raises UserError, naming ``key``, for another table.
    """
    table = read_labels(key, path)
    labels = [name for name in table.columns if name not in ("image_id", "rad_id")]
    names = table["image_id"].map_elements(lambda name: image_name("{stem}", name), pl.String)
    reader = pl.when(pl.col("rad_id") == "").then(pl.lit(CONSENSUS)).otherwise(pl.col("rad_id"))
    table = table.with_columns(image_id=names, reader=reader).drop("rad_id")
    image_ids = [image["image_id"] for image in records.images if image["split"] == split]
    is_first = pl.struct("image_id", "reader").is_first_distinct()
    has_image = pl.col("image_id").is_in(image_ids)
    records.counts["rows of image labels"] += table.height
    records.num_rows[LABELS] += table.height
    excluded = {
        "no_image": (table.filter(~has_image), "no picture of it was read in this split"),
        "bad_row": (table.filter(has_image & ~is_first), "its reader has another row of it"),
    }
    for reason, (rows, meaning) in excluded.items():
        for image_id in rows["image_id"]:
            records.exclude(reason, image_id or None, detail=f"{path.name}: {meaning}", record_kind=LABELS)
    _count_unknown_labels(records, labels, table)
    used = table.filter(has_image & is_first)
    records.num_kept[LABELS] += used.height
    records.tables.append(_label_facts(used, labels))


def _count_unknown_labels(records: SourceRecords, labels: list[str], table: pl.DataFrame) -> None:
    _count_unknown(records, {name: table.height for name in labels if name not in KNOWN}, "labels")
    cells = table.select((~pl.col(name).is_in([*CELLS, ""])).sum() for name in labels).row(0, named=True)
    records.count_unknown_cells({name: number for name, number in cells.items() if number})


def _label_facts(table: pl.DataFrame, labels: list[str]) -> pl.DataFrame:
    values = pl.col(labels).replace_strict(CELLS, default=None, return_dtype=pl.String)
    facts = table.with_columns(values).unpivot(
        labels, index=["image_id", "reader"], variable_name="name", value_name="stated"
    )
    facts = facts.drop_nulls("stated").with_columns(pl.lit(LABEL).alias("kind"), value=pl.col("stated"))
    return complete_facts(facts)
