"""The records of a source, read in blocks of images, which bounds the memory. Boxes are converted to fractions."""

import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import accumulate
from typing import IO, Self

import numpy as np
import polars as pl

from cxr.base.hdf5 import Shard
from cxr.base.tables import CRC, read_lines, scan_table
from cxr.geometry.affine import affine_to_upright, boxes_to_original
from cxr.geometry.masks import component_boxes
from cxr.radvlm.labels import PRESENT, load_label_names
from cxr.radvlm.samples import NamedBoxes, group_boxes, sort_by_area, survive_rounding, unit_boxes


class LineFiles:
    """Context manager with random access to the lines of several files. Only positions of lines are in memory."""

    def __init__(self, paths: Sequence[str]):
        self._paths = paths

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._files: list[IO[bytes]] = []
        for path in self._paths:
            self._files.append(self._stack.enter_context(open(path, "rb")))
        self._ends = [array("Q", accumulate(map(len, file), initial=0)) for file in self._files]
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def num_lines(self) -> int:
        return sum(len(ends) - 1 for ends in self._ends)

    def get(self, part: int, row: int) -> bytes:
        """Return line ``row`` of file ``part`` as bytes. Both numbers start at 0."""
        self._files[part].seek(self._ends[part][row])
        return self._files[part].readline()


BOX, LABEL, PHRASE, REGION = "box", "label", "phrase", "region"  # kinds of facts


def summarize_source(facts: pl.LazyFrame) -> tuple[tuple[str, ...], bool]:
    """Return (sorted names of the findings that have boxes in a source, whether the source has labels)."""
    boxed = facts.filter(kind=BOX).select(pl.col("name").unique().sort()).collect()["name"]
    labels = facts.filter(pl.col("reader").is_null(), kind=LABEL).select(pl.len()).collect().item()
    return tuple(boxed), labels > 0


@dataclass
class SourceBlock:
    """A block of images of a source, with the facts and lines about them. ``present`` and ``stated`` have only images
    with labels. Labels of single annotators are ignored."""

    source: str
    images: Mapping[str, dict]  # {image_id: row} of usable images
    facts: pl.DataFrame
    sizes: Mapping[str, tuple[int, int]]  # {image_id: (rows, columns)}
    summary: tuple[tuple[str, ...], bool]  # from summarize_source
    texts: Sequence[Mapping] = ()  # lines about the images, like the next three
    phrases: Sequence[Mapping] = ()
    conversations: Sequence[Mapping] = ()
    pairs: Sequence[Mapping] = ()
    boxes_by_mask: Mapping[str, tuple] = field(default_factory=dict)  # {mask_id: boxes}
    present: dict[str, list[str]] = field(init=False)  # {image_id: present labels without No Finding}
    stated: dict[str, tuple[str, ...]] = field(init=False)  # {image_id: ids of its label facts}

    def __post_init__(self) -> None:
        label_names = load_label_names()
        order = {name: at for at, name in enumerate(label_names.names)}
        is_present = (pl.col("value") == PRESENT) & (pl.col("name") != label_names.no_finding)
        labels = self.facts.filter(pl.col("reader").is_null(), kind=LABEL).group_by("image_id", maintain_order=True)
        self.present, self.stated = {}, {}
        for image_id, names, fact_ids in labels.agg(pl.col("name").filter(is_present), "fact_id").iter_rows():
            self.present[image_id] = sorted(set(names), key=lambda name: (order.get(name, len(order)), name))
            self.stated[image_id] = tuple(fact_ids)

    def named_boxes(self, kind: str) -> Iterator[NamedBoxes]:
        """Yield the boxes of facts of ``kind`` in the images, grouped by image and name (:func:`group_boxes`)."""
        usable_facts = self.facts.filter(pl.col("image_id").is_in(list(self.images)))
        return group_boxes(usable_facts, self.sizes, kind)


Geometry = Mapping[str, tuple[np.ndarray, tuple[int, ...]]]
"""{image_id: (affine from its frame to the original image, (rows, columns) of the original image)}."""


def read_geometry(frames: Sequence[str], image_ids: Collection[str]) -> Geometry:
    """Return affine and size (:data:`Geometry`) of each image in ``image_ids`` that has a frame."""
    geometry_by_image = {}
    for path in frames:
        with Shard(path) as shard:
            for image_id in filter(image_ids.__contains__, shard.ids):
                rows, columns = map(int, shard.get("original_shape", image_id))
                geometry_by_image[image_id] = affine_to_upright(shard.get("to_original", image_id), (rows, columns))
    return geometry_by_image


def read_mask_boxes(
    pairs: Sequence[Mapping], geometry: Geometry, masks: Sequence[str], smallest: int
) -> dict[str, tuple]:
    """Return {mask_id: boxes of the mask's components} as fractions of the original image, the largest first.
    ``pairs``: ILS questions with their masks; ``smallest``: minimum area of a component, in frame pixels."""
    image_by_mask = {pair["mask_id"]: pair["image_id"] for pair in pairs if pair["mask_id"]}
    boxes_by_mask = {}
    for path in masks:
        with Shard(path, key="mask_id") as shard:
            for mask_id in filter(image_by_mask.__contains__, shard.ids):
                affine, shape = geometry[image_by_mask[mask_id]]
                boxes = component_boxes(shard.get("mask", mask_id), smallest)
                unit = unit_boxes(boxes_to_original(boxes, affine), *shape)
                boxes_by_mask[mask_id] = sort_by_area(unit[survive_rounding(unit)])
    return boxes_by_mask


BLOCK_SIZE = 4096  # images per block; it does not change the results
KINDS_OF_LINES = ("texts", "phrases", "conversations", "pairs")


class Blocks(LineFiles):
    """Context manager with the blocks of a source, sorted by image. Raises ValueError if the facts are not sorted.

    ``images``: images to use; ``facts``: fact table, sorted by image; ``sizes``: {image_id: (rows, columns)};
    ``lines``: {texts, phrases, conversations or pairs: files}; ``areas``: {mask_id: boxes}. Attributes: ``num_images``:
    {kind of lines: number of images that they name}; ``num_by_missing_image``: {(kind, image in no block): number}.
    """

    def __init__(
        self, source: str, images: pl.DataFrame, facts: str, sizes: Mapping, lines: Mapping[str, Sequence[str]],
        areas: Mapping[str, tuple] | None = None,
    ):  # fmt: skip
        kind_paths = [(kind, path) for kind in KINDS_OF_LINES for path in lines.get(kind, ())]
        super().__init__([path for _, path in kind_paths])
        self.source, self.facts, self._sizes, self._areas = source, scan_table(facts), sizes, areas or {}
        self._images = images.sort("image_id")
        self.summary = summarize_source(self.facts)
        ids = self._images["image_id"]
        self._starts_of_blocks = range(0, max(len(ids), 1), BLOCK_SIZE)
        blocks = {image_id: at // BLOCK_SIZE for at, image_id in enumerate(ids)}
        self._places: dict[tuple[str, int], array] = defaultdict(lambda: array("Q"))
        self.num_images: Counter[str] = Counter()
        self.num_by_missing_image: Counter[tuple[str, str]] = Counter()
        for part, (kind, path) in enumerate(kind_paths):
            for row, line in enumerate(read_lines(path)):
                image_ids = line["image_ids"] if kind == "texts" else [line["image_id"]]
                self.num_images[kind] += len(image_ids)
                self.num_by_missing_image.update((kind, image_id) for image_id in image_ids if image_id not in blocks)
                for block in {blocks[image_id] for image_id in image_ids if image_id in blocks}:
                    self._places[kind, block].extend((part, row))
        fact_image_ids = self.facts.select("image_id").collect()["image_id"]
        if not fact_image_ids.is_sorted():
            raise ValueError(f"{facts} is not sorted by image: delete the file and rerun")
        first_ids = (ids[at] for at in self._starts_of_blocks[1:])
        self._edges = [0, *map(fact_image_ids.search_sorted, first_ids), len(fact_image_ids)]

    def each(self, reading: Collection[str] = KINDS_OF_LINES) -> Iterator[SourceBlock]:
        """Yield each block. Only lines of the kinds in ``reading`` are loaded."""
        for block, at in enumerate(self._starts_of_blocks):
            first, last = self._edges[block], self._edges[block + 1]
            rows = self._images.slice(at, BLOCK_SIZE).iter_rows(named=True)
            yield SourceBlock(
                self.source, {row["image_id"]: row for row in rows}, self.facts.slice(first, last - first).collect(),
                self._sizes, self.summary, boxes_by_mask=self._areas,
                **{kind: self._lines_of_block(kind, block) for kind in reading},
            )  # fmt: skip

    def _lines_of_block(self, kind: str, block: int) -> list[dict]:
        places = iter(self._places.get((kind, block), ()))
        lines = [json.loads(self.get(part, row)) for part, row in zip(places, places, strict=True)]
        for line in lines:
            line.pop(CRC, None)
        return lines
