"""What a source gives to a mix of some of its images: their sizes, and facts with their boxes as fractions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import cv2
import numpy as np
import polars as pl

from cxr.base.hdf5 import Shard
from cxr.geometry.affine import affine_to_upright, boxes_to_original
from cxr.geometry.boxes import CORNERS
from cxr.geometry.masks import component_boxes
from cxr.radvlm.boxes import in_order, unit_boxes, with_area
from cxr.radvlm.labels import PRESENT, names

BOX, LABEL, PHRASE, REGION = "box", "label", "phrase", "region"
"""Kinds of facts."""
PARENT = 3
"""Column of OpenCV's outlines that says whose hole one is; below 0 it is a part's own."""


@dataclass(frozen=True)
class Named:
    """The boxes of one name, finding or phrase of an image. key: what wordings are drawn for; name: a name or the words
    of the phrase; boxes: fractions of the picture, the largest first; facts: their ids; flat: ids of those without an
    area once they are written.
    """

    image_id: str
    key: str
    name: str
    boxes: tuple
    facts: tuple[str, ...]
    flat: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    """What is known of a whole source. boxed: findings that have boxes, sorted; labelled: whether it has labels."""

    boxed: tuple[str, ...]
    labelled: bool


def whole_of(facts: pl.LazyFrame) -> Whole:
    """Return what the facts of a whole source tell."""
    boxed = facts.filter(kind=BOX).select(pl.col("name").unique().sort()).collect()["name"]
    labels = facts.filter(pl.col("reader").is_null(), kind=LABEL).select(pl.len()).collect().item()
    return Whole(tuple(boxed), labels > 0)


@dataclass
class Given:
    """images: {image_id: its row}, those that a frame shows and no other split has; facts: the table; sizes: {image_id:
    (rows, columns)}; whole: what is known of all images; present: {image_id: labels that are present, No Finding
    apart}, of images with labels; stated: {image_id: ids of the facts on labels}, of no single reader; texts, phrases,
    conversations, pairs: lines; areas: {mask_id: its boxes}.
    """

    source: str
    images: Mapping[str, dict]
    facts: pl.DataFrame
    sizes: Mapping[str, tuple[int, int]]
    whole: Whole
    texts: Sequence[Mapping] = ()
    phrases: Sequence[Mapping] = ()
    conversations: Sequence[Mapping] = ()
    pairs: Sequence[Mapping] = ()
    areas: Mapping[str, tuple] = field(default_factory=dict)
    present: Mapping[str, list[str]] = field(init=False)
    stated: Mapping[str, tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        label_resource = names()
        order = {name: at for at, name in enumerate(label_resource.names)}
        stated: dict[str, list[str]] = {}
        present: dict[str, set[str]] = {}
        labels = self.facts.filter(pl.col("reader").is_null(), kind=LABEL).select(
            "image_id", "name", "value", "fact_id"
        )
        for image_id, name, value, fact_id in labels.iter_rows():
            stated.setdefault(image_id, []).append(fact_id)
            image_labels = present.setdefault(image_id, set())
            if value == PRESENT and name != label_resource.no_finding:
                image_labels.add(name)
        self.present = {
            image_id: sorted(image_labels, key=lambda name: (order.get(name, len(order)), name))
            for image_id, image_labels in present.items()
        }
        self.stated = {image_id: tuple(fact_ids) for image_id, fact_ids in stated.items()}

    def named(self, kind: str) -> Iterator[Named]:
        """Yield the boxes of each name and image, of a kind that has boxes, sorted by image and name.

        Boxes of single readers, which were fused, are none of them; nor is a box whose picture has no known size.
        """
        sized_ids = [image_id for image_id in self.images if image_id in self.sizes]
        fact_table = self.facts.filter(pl.col("reader").is_null(), pl.col("image_id").is_in(sized_ids), kind=kind)
        fact_table = fact_table.sort("image_id", "name", "group", "fact_id")
        sizes = np.array([self.sizes[image_id] for image_id in fact_table["image_id"]]).reshape(-1, 2)
        boxes = unit_boxes(fact_table.select(CORNERS).to_numpy(), sizes[:, 0], sizes[:, 1])
        rows = zip(
            fact_table.select("image_id", "name", "group", "fact_id").iter_rows(), boxes, with_area(boxes), strict=True
        )
        for (image_id, name, group), part in groupby(rows, key=lambda row: row[0][:3]):
            name_rows = list(part)
            fact_ids, flat = (
                tuple(row[3] for row, _, has_area in name_rows if has_area == expected) for expected in (True, False)
            )
            placed = in_order(np.array([box for _, box, has_area in name_rows if has_area]))
            yield Named(image_id, group or f"{image_id}/{name}", name, placed, fact_ids, flat)


def sizes_of(images: pl.DataFrame, shards: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return {image_id: (rows, columns)} of the images that have a frame; a frame knows its original's size."""
    wanted_ids, size_by_image = set(images["image_id"]), {}
    for path in shards:
        with Shard(path) as shard:
            for image_id in shard.ids:
                if image_id in wanted_ids:
                    _, size_by_image[image_id] = _upright(shard, image_id)
    return size_by_image


def areas_of(pairs: Sequence[Mapping], frames: Sequence[str], masks: Sequence[str], smallest: int) -> dict[str, tuple]:
    """Return {mask_id: boxes around its parts}, fractions of the original picture, the largest first.

    ``frames``: shards of the images; ``masks``: shards of masks, frames too; ``smallest``: least part that has a box,
    in frame pixels.
    """
    image_by_mask = {pair["mask_id"]: pair["image_id"] for pair in pairs if pair["mask_id"]}
    placed = _placed(frames, set(image_by_mask.values()))
    boxes_by_mask = {}
    for path in masks:
        with Shard(path, key="mask_id") as shard:
            for mask_id in filter(image_by_mask.__contains__, shard.ids):
                affine, shape = placed[image_by_mask[mask_id]]
                boxes = around_parts(shard.get("mask", mask_id), smallest)
                unit = unit_boxes(boxes_to_original(boxes, affine), *shape)
                boxes_by_mask[mask_id] = in_order(unit[with_area(unit)])
    return boxes_by_mask


def around_parts(mask: np.ndarray, smallest: int) -> np.ndarray:
    """Return what :func:`component_boxes` does, for a mask (H, W) whose parts are few and lie close to each other.

    Only what holds them is searched, and one part alone need not be measured.
    """
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    if not len(rows):
        return component_boxes(mask, smallest)
    # the search goes by blocks of two, and of equal parts the first is the largest
    first_row, first_column = rows[0] // 2 * 2, columns[0] // 2 * 2
    part = mask[first_row : rows[-1] + 1, first_column : columns[-1] + 1].astype(np.uint8)
    _, (outlines,) = cv2.findContours(part, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if np.count_nonzero(outlines[:, PARENT] < 0) == 1:
        return np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], np.float64)
    return component_boxes(part, smallest) + np.array([first_column, first_row, first_column, first_row])


def _placed(frames: Sequence[str], wanted_ids: set[str]) -> dict[str, tuple[np.ndarray, tuple[int, ...]]]:
    """Return {image_id: (affine to the original, its rows and columns)} of the images that are wanted."""
    geometry_by_image = {}
    for path in frames:
        with Shard(path) as shard:
            for image_id in filter(wanted_ids.__contains__, shard.ids):
                geometry_by_image[image_id] = _upright(shard, image_id)
    return geometry_by_image


def _upright(shard: Shard, image_id: str) -> tuple[np.ndarray, tuple[int, int]]:
    """Return the affine from a frame to its upright original, whose fractions boxes are, and that one's size."""
    rows, columns = map(int, shard.get("original_shape", image_id))
    return affine_to_upright(shard.get("to_original", image_id), (rows, columns))
