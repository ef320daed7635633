"""Readers of the formats ``vindr``, ``nih``, ``rsna`` and ``coco``, which give each box a name (its finding)."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from cxr.imaging.cohort.header import read_header
from cxr.imaging.cohort.split import split_name, subject_splits
from cxr.radvlm.labels import ABSENT, PRESENT
from cxr.radvlm.sources.facts import BOX, FUSED, IMAGES, LABEL, LABELS, UNNAMED_BOX, ReadOptions, SourceRecords

VINDR_TABLES = {"train": ("annotations/annotations_train.csv", "annotations_train.csv", "train.csv"),
         "test": ("annotations/annotations_test.csv", "annotations_test.csv")}  # fmt: skip
"""{split: possible paths of its table of boxes}. The last path of train is that of Kaggle's copy."""
LABEL_TABLES = {"train": ("annotations/image_labels_train.csv", "image_labels_train.csv"),
         "test": ("annotations/image_labels_test.csv", "image_labels_test.csv")}  # fmt: skip
"""{split: possible paths of its table of image labels}."""
CONSENSUS = "consensus"  # name of the annotator in facts from a table without annotators
CELLS = {"1": PRESENT, "1.0": PRESENT, "0": ABSENT, "0.0": ABSENT}  # {cell of a label table: label value}
FUSION_IOU = 0.1  # IoU above which boxes of one class by several annotators are fused (authors' code)
FUSION_DECIMALS = 3  # decimals of corners after fusion, as fractions of the image (authors' code)
FUSED_SPLITS = ("train", "validate")  # splits whose boxes are fused; the test boxes of VinDr-CXR are a consensus
IMAGE_ENDINGS = (".dicom", ".dcm", ".png", ".jpg", ".jpeg")
ENDINGS = ("", *(case(ending) for ending in IMAGE_ENDINGS for case in (str.lower, str.upper)))


@dataclass(frozen=True)
class SourceImage:
    """An image that a source lists."""

    name: str
    split: str
    regions: list[Annotation]  # its named boxes, with their annotators
    folders: Sequence[Path]  # folders that may contain its file

    def find_file(self) -> Path | None:
        """Return the image file, or None. The name is tried as listed, with / as separator, and in Unicode NFC, NFD."""
        system_name = self.name.replace("\\", "/")
        forms = (unicodedata.normalize(form, system_name) for form in ("NFC", "NFD"))
        names = dict.fromkeys([self.name, system_name, *forms])
        paths = (folder / f"{name}{ending}" for folder in self.folders for name in names for ending in ENDINGS)
        return next((path for path in paths if path.is_file()), None)


def read_vindr(options: ReadOptions) -> SourceRecords:
    """Return the images with boxes and, if given, image labels. Raises UserError if there is no table of boxes."""
    records, images = SourceRecords(), []
    for split, path in _find_tables(options.folder, VINDR_TABLES):
        regions, image_names = read_annotations(options.key, path, "vindr")
        folders = (options.pictures / split, options.pictures)
        images += _group_by_image(regions, image_names, lambda image, split=split: split, folders)
        names = read_frame(path, options.key, ("class_name",))["class_name"].str.to_lowercase()
        records.num_rows[BOX] += len(names)
        records.num_excluded[BOX, "no_finding"] += int(names.is_in(NO_FINDING).sum())  # of readers who saw none
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
    for name, number in sorted(number_by_name.items()):
        records.counts[f"unknown_label: {quote_value(name)}"] += number
    if number_by_name:
        log.warning(
            "%d %s are unknown to VinDr-CXR: they are kept, and listed in counts.tsv", len(number_by_name), noun
        )


def read_box_file(options: ReadOptions) -> SourceRecords:
    """Return the images and boxes of a file of format ``nih``, ``rsna`` or ``coco``. If the file gives no split for an
    image, a hash of the subject decides."""
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
    """Return the subject of an image name: the first group of the regular expression in the setting ``subject`` or,
    without a match, the name itself."""
    match = re.search(options.source["subject"], image) if options.source["subject"] else None
    return (match and match.group(1)) or image_name("{stem}", image)


def fuse_readers(regions: Sequence[tuple[str, str, str, np.ndarray]], sizes: Mapping) -> list[tuple]:
    """Fuse the boxes of several annotators, and return sorted tuples (image, name, fused box).

    ``regions``: tuples (image, name, annotator, box). ``sizes``: {image: (rows, columns)}; in these images, the corners
    of fused boxes are rounded.
    """
    if not regions:
        return []
    names = sorted({(image, name) for image, name, _, _ in regions})
    number = {name: place for place, name in enumerate(names)}
    group = np.array([number[image, name] for image, name, _, _ in regions])
    boxes = np.array([box for *_, box in regions], np.float64)
    order = fusion_order(boxes, group, np.array([reader for _, _, reader, _ in regions]))
    fused = fuse_groups(boxes[order], group[order], FUSION_IOU)
    group_of_box = dict(zip(fused.member_of.tolist(), group[order].tolist(), strict=True))
    image_boxes = []
    for place, box in enumerate(fused.boxes):
        image, name = names[group_of_box[place]]
        if size := sizes.get(image):
            scale = np.array([*size[::-1], *size[::-1]], np.float64)
            box = np.round(box / scale, FUSION_DECIMALS) * scale
        image_boxes.append((image, name, box))
    return image_boxes


def _find_tables(folder: Path, names_by_split: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Path]]:
    """Yield (split, path of its table). The path is the first possible one that exists, compressed or not."""
    for split, names in names_by_split.items():
        candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
        if (path := next(filter(Path.is_file, candidates), None)) is not None:
            yield split, path


def _group_by_image(
    regions: Iterable[Annotation], image_names: Iterable[str], split_of: Callable[[str], str], folders: Sequence[Path]
) -> list[SourceImage]:
    regions_by_image: dict[str, list[Annotation]] = {image: [] for image in image_names}
    for region in regions:
        regions_by_image.setdefault(region.image, []).append(region)
    return [SourceImage(name, split_of(name), boxes, folders) for name, boxes in sorted(regions_by_image.items())]


def _add_images(records: SourceRecords, options: ReadOptions, images: Sequence[SourceImage]) -> None:
    sizes: dict[str, tuple[int, int]] = {}
    readers: list[tuple[str, str, str, np.ndarray]] = []
    several = any(region.reader for image in images for region in image.regions)
    records.num_rows[IMAGES] += len(images)
    records.counts["images in tables"] += len(images)
    for image in images:
        records.counts["table rows"] += len(image.regions)
        image_id = image_name("{stem}", image.name)
        try:
            path, stored, turn = _find_image(image, image_id in sizes)
        except Rejected as rejected:
            records.num_excluded[IMAGES, rejected.reason] += 1
            record_kind, num_rows = (BOX, len(image.regions)) if image.regions else ("", 1)
            records.exclude(rejected.reason, image_id, detail=rejected.detail, record_kind=record_kind, rows=num_rows)
            continue
        sizes[image_id] = size = turn.shape(stored)
        named_regions = [region for region in image.regions if region.label.strip()]
        num_unnamed = len(image.regions) - len(named_regions)
        records.exclude("unknown_label", image_id, detail=UNNAMED_BOX, record_kind=BOX, rows=num_unnamed)
        records.images.append({
            "image_id": image_id, "study_id": image_id, "subject_id": subject_of(image.name, options),
            "split": image.split, "view": None, "sex": None, "rows": size[0], "columns": size[1], "path": str(path),
            "frames": options.name,
        })  # fmt: skip
        is_fused = several and image.split in FUSED_SPLITS
        boxes_by_name: dict[str, list] = {}
        for region in named_regions:
            box, reader = _upright_box(region, turn, stored), region.reader or "reader"
            if is_fused:
                fields = {"detail": region.label, "reader": reader}
                tidy_boxes = records.add_boxes(image_id, BOX, region.label, box[None], size, **fields)
                readers += [(image_id, region.label, reader, tidy_box) for tidy_box in tidy_boxes]
            else:
                boxes_by_name.setdefault(region.label, []).append(box)
        for name, boxes in sorted(boxes_by_name.items()):
            records.add_boxes(image_id, BOX, name, np.array(boxes), size)
    for image_id, name, box in fuse_readers(readers, sizes):
        records.add_boxes(image_id, BOX, name, box[None], sizes[image_id], record_kind=FUSED)
        records.num_rows[FUSED] += 1
    records.counts["fused boxes"] += records.num_rows[FUSED]


def _find_image(image: SourceImage, is_duplicate: bool) -> tuple[Path, tuple[int, int], Turn]:
    """Return (path, stored size, turn to the upright image) of an image. Raises Rejected if it cannot be used."""
    if (path := image.find_file()) is None:
        raise Rejected("missing_file")
    header = read_header(str(path))
    if header.size is None:
        raise Rejected("undecodable", "the file header has no image size")
    if is_duplicate:
        raise Rejected("duplicate_image")
    if {region.size for region in image.regions if region.size} - {header.size}:
        raise Rejected("shape_mismatch")
    return path, header.size, header.turn


def _upright_box(region: Annotation, turn: Turn, stored: tuple[int, int]) -> np.ndarray:
    """Return a region's box (4,) in px of the upright image, NaN if it has none. ``stored``: size before the turn."""
    box = np.array(region_box(region) or (np.nan,) * 4, np.float64)
    return box if turn == UPRIGHT or np.isnan(box).any() else boxes_to_upright(box, turn, stored)[0]


def add_image_labels(records: SourceRecords, key: str, split: str, path: Path) -> None:
    """Add VinDr-CXR's labels of whole images. In train they come from single annotators, in test from their consensus.

    Each label becomes a fact with an annotator. No task uses such facts, because these diagnoses have no box. Rows of
    images that were not read, and repeated rows of an annotator, are excluded. Raises UserError, which names the
    setting ``key``, if the table has another format.
    """
    table = read_labels(key, path)
    labels = [name for name in table.columns if name not in ("image_id", "rad_id")]
    names = table["image_id"].map_elements(lambda name: image_name("{stem}", name), pl.String)
    reader = pl.when(pl.col("rad_id") == "").then(pl.lit(CONSENSUS)).otherwise(pl.col("rad_id"))
    table = table.with_columns(image_id=names, reader=reader).drop("rad_id")
    is_first = pl.struct("image_id", "reader").is_first_distinct()
    has_image = pl.col("image_id").is_in([image["image_id"] for image in records.images if image["split"] == split])
    records.counts["rows of image labels"] += table.height
    records.num_rows[LABELS] += table.height
    for reason, condition, meaning in (
        ("no_image", ~has_image, "no image of this id was read in this split"),
        ("bad_row", has_image & ~is_first, "the annotator has an earlier row for this image"),
    ):
        for image_id in table.filter(condition)["image_id"]:
            records.exclude(reason, image_id or None, detail=f"{path.name}: {meaning}", record_kind=LABELS)
    _count_unknown(records, {name: table.height for name in labels if name not in KNOWN}, "labels")
    cells = table.select((~pl.col(name).is_in([*CELLS, ""])).sum() for name in labels).row(0, named=True)
    records.count_unknown_cells({name: number for name, number in cells.items() if number})
    used = table.filter(has_image & is_first)
    records.num_kept[LABELS] += used.height
    values = pl.col(labels).replace_strict(CELLS, default=None, return_dtype=pl.String)
    index = ["image_id", "reader"]
    facts = used.with_columns(values).unpivot(labels, index=index, variable_name="name", value_name="stated")
    records.tables.append(facts.drop_nulls("stated").with_columns(kind=pl.lit(LABEL), value="stated"))
