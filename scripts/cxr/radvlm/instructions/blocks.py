"""A source in blocks of images, so that memory holds one block and, of every image, little more than its row."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack

import polars as pl

from cxr.base.scanned import scan_table
from cxr.radvlm.instructions.given import Given, whole_of
from cxr.radvlm.instructions.lines import LinesOf

IMAGES = 4096
"""Images of a block; the lines do not depend on it."""
ABOUT = {
    "texts": lambda line: line["image_ids"], "phrases": lambda line: [line["image_id"]],
    "conversations": lambda line: [line["image_id"]], "pairs": lambda line: [line["image_id"]],
}  # fmt: skip
"""{what lines there are: the images of one}."""


class Blocks:
    """The blocks of a source, in the order of the images. Use inside ``with``.

    ``images``: the rows that a mix can show; ``facts``: a table sorted by image; ``sizes``: {image: (rows, columns)};
    ``lines``: {texts, phrases, conversations, pairs: their files}. Raises ValueError for a table that is not sorted.
    """

    def __init__(
        self, source: str, images: pl.DataFrame, facts: str, sizes: Mapping, lines: Mapping[str, Sequence[str]],
        areas: Mapping[str, tuple] | None = None,
    ):  # fmt: skip
        self.source, self.facts, self._sizes, self._areas = source, scan_table(facts), sizes, areas or {}
        self._images = images.sort("image_id")
        self.whole = whole_of(self.facts)
        ids = self._images["image_id"]
        self._starts = range(0, max(len(ids), 1), IMAGES)
        blocks = {image_id: at // IMAGES for at, image_id in enumerate(ids)}
        self.lines = {kind: LinesOf(lines.get(kind, ()), blocks, about) for kind, about in ABOUT.items()}
        fact_image_ids = self.facts.select("image_id").collect()["image_id"]
        if not fact_image_ids.is_sorted():
            raise ValueError(f"{facts} is not sorted by image")
        self._edges = [0, *(fact_image_ids.search_sorted(ids[at]) for at in self._starts[1:]), len(fact_image_ids)]

    def __enter__(self) -> "Blocks":
        self._stack = ExitStack()
        for lines in self.lines.values():
            self._stack.enter_context(lines)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def each(self, reading: Collection[str] = tuple(ABOUT)) -> Iterator[Given]:
        """Yield what is given of each block, of the lines those of the kinds ``reading``."""
        for block, at in enumerate(self._starts):
            first, last = self._edges[block], self._edges[block + 1]
            rows = self._images.slice(at, IMAGES).iter_rows(named=True)
            yield Given(
                self.source, {row["image_id"]: row for row in rows}, self.facts.slice(first, last - first).collect(),
                self._sizes, self.whole, areas=self._areas,
                **{kind: self.lines[kind].of(block) for kind in reading},
            )  # fmt: skip
