"""Records that every reader of a source fills: images, facts, texts, exclusions and counts; and its options."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import Column, Columns, schema
from cxr.base.conservation import CountRow, counted_rows
from cxr.base.seeds import stable_hash
from cxr.geometry.boxes import CORNERS
from cxr.radvlm.labels import ABSENT, PRESENT, UNCERTAIN, load_label_names, resolve_uncertain

IMAGE_COLUMNS: Columns = {
    "source": Column(pl.String, "Source."),
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Its study; the image where the source names none."),
    "subject_id": Column(pl.String, "Its patient; the image where the source names none."),
    "split": Column(pl.String, "train, validate or test."),
    "view": Column(pl.String, "View, by its code: PA, AP; null if unknown."),
    "sex": Column(pl.String, "F or M; null where the source does not tell."),
    "rows": Column(pl.Int64, "Height of the original picture; null where the source does not tell.", "pixels"),
    "columns": Column(pl.Int64, "Width of the original picture; null where the source does not tell.", "pixels"),
    "path": Column(pl.String, "Image file."),
    "frames": Column(pl.String, "Source whose frames hold it; own: the cohort's."),
}
FACT_COLUMNS: Columns = {
    "fact_id": Column(pl.String, "Stable hash of source, image, kind, name, group, reader and box."),
    "image_id": Column(pl.String, "Image."),
    "kind": Column(pl.String, "label, box (of a finding), region or phrase."),
    "name": Column(pl.String, "The label, the finding, the region, or the words of the phrase."),
    "value": Column(pl.String, "present, absent or uncertain, as radvlm.sources.uncertain reads it; null of no label."),
    "stated": Column(pl.String, "present, absent or uncertain, as the source states it; null of no label."),
    "group": Column(pl.String, "What the boxes of one phrase, or of one finding of an image, have in common."),
    "reader": Column(
        pl.String,
        "Reader of a box that was fused with others, or of an image's label that is not asked; null of what is.",
    ),
    **{
        name: Column(pl.Float64, f"{what} edge of the box; null without one.", "original pixels")
        for name, what in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
}
COUNT_COLUMNS: Columns = {
    "what": Column(pl.String, "What is counted."),
    "number": Column(pl.Int64, "How many."),
}
IMAGES_SCHEMA, FACTS_SCHEMA = schema(IMAGE_COLUMNS), schema(FACT_COLUMNS)


@dataclass(frozen=True)
class ReadOptions:
    """Options of a reader. source: keys of the source (format, path, pictures, subject); uncertain, split:
    settings of radvlm.sources; max_characters: longest report; seed, shares: to split sources without splits.
    """

    name: str
    source: Mapping[str, str]
    uncertain: str
    split: str
    max_characters: int
    section_overrides: bool
    seed: int
    shares: Sequence[float]

    @property
    def key(self) -> str:
        """Settings key of the source's path, for error messages."""
        return f"radvlm.sources.list.{self.name}.path"

    @property
    def folder(self) -> Path:
        return Path(self.source["path"])

    @property
    def pictures(self) -> Path:
        """Folder of the source's images."""
        return Path(self.source["pictures"] or self.source["path"])


LABEL, BOX, REGION, PHRASE = KINDS = ("label", "box", "region", "phrase")
STAGE = "radvlm_sources"
KEPT = "kept"
IMAGES, LABELS, TEXTS, FUSED = "images", "labels", "texts", "fused boxes"
"""Kinds of counted records besides facts: images, rows of label tables, texts, fused boxes."""
UNNAMED_BOX = "a box without a name"
EMPTY_COLUMNS = dict.fromkeys(("value", "stated", "group", "reader", *CORNERS))
"""Optional columns of a fact, all empty."""


@dataclass
class SourceRecords:
    """Records read from a source: rows of images and facts (without ids), text lines, excluded rows and counts.

    tables: more facts as tables, for sources with millions of them; num_rows: {record kind: rows of the source};
    num_kept: {record kind: rows in the results}; num_excluded: {(record kind, reason): rows excluded}.
    """

    images: list[dict] = field(default_factory=list)
    facts: list[dict] = field(default_factory=list)
    tables: list[pl.DataFrame] = field(default_factory=list)
    texts: list[dict] = field(default_factory=list)
    excluded: list[dict] = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)
    num_rows: Counter = field(default_factory=Counter)
    num_kept: Counter = field(default_factory=Counter)
    num_excluded: Counter = field(default_factory=Counter)

    def exclude(
        self, reason: str, image_id: str | None = None, study_id: str | None = None, detail: str = "", *,
        record_kind: str = "", number: int = 1, rows: int = 1,
    ) -> None:  # fmt: skip
        """Exclude ``rows`` rows of the source, with a reason.

        ``record_kind``: their kind in :attr:`num_rows`, "" if it is not counted there; ``number``: how many to count
        for each.
        """
        row = {"image_id": image_id, "study_id": study_id, "stage": STAGE, "reason": reason, "detail": detail}
        self.excluded += [row] * rows
        if record_kind and rows:
            self.num_excluded[record_kind, reason] += number * rows

    def conservation_rows(self, source: str) -> list[CountRow]:
        """Return the conservation rows of all kinds. Raises AssertionError if a row is unaccounted for."""
        conserved_rows = []
        for record_kind in sorted({*self.num_rows, *self.num_kept, *(kind for kind, _ in self.num_excluded)}):
            parts = {KEPT: self.num_kept[record_kind]}
            parts |= {
                reason: number for (kind, reason), number in sorted(self.num_excluded.items()) if kind == record_kind
            }
            conserved_rows += counted_rows(f"{STAGE}, {source}", record_kind, self.num_rows[record_kind], parts)
        return conserved_rows

    def count_unknown_cells(self, cells: Mapping[str, int]) -> None:
        """Count label cells with unknown values; they become no fact."""
        for label, number in sorted(cells.items()):
            self.counts[f"unknown_label: cells of {label}"] += number


def replace_control_characters(text: str) -> str:
    """Replace control characters other than line breaks and tabs by blanks."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)


def fact_row(image_id: str, kind: str, name: str, **more: object) -> dict:
    """Return a fact row without its id; columns missing from ``more`` are null."""
    return {"image_id": image_id, "kind": kind, "name": name} | EMPTY_COLUMNS | more


def box_facts(image_id: str, kind: str, name: str, boxes: np.ndarray, **more: object) -> list[dict]:
    """Return one fact per box (N, 4) of a name; they form one group."""
    group = f"g{stable_hash(image_id, kind, name, *more.values()):016x}"
    return [
        fact_row(image_id, kind, name, group=group, **more, **dict(zip(CORNERS, map(float, box), strict=True)))
        for box in boxes
    ]


def image_label_facts(image_id: str, stated: dict[str, str], uncertain: str) -> list[dict]:
    """Return one fact per label of an image; see :func:`resolve_uncertain` for ``uncertain``."""
    values = resolve_uncertain(stated, uncertain)
    return [fact_row(image_id, LABEL, name, value=values[name], stated=value) for name, value in stated.items()]


@dataclass(frozen=True)
class CleanBoxes:
    """Boxes (N, 4) with sorted corners, clipped to the image; area: mask of boxes with an area, bool (N,); swapped,
    clipped: numbers of boxes that were changed.
    """

    boxes: np.ndarray
    area: np.ndarray
    swapped: int
    clipped: int


def clean_boxes(boxes: np.ndarray, shapes: np.ndarray) -> CleanBoxes:
    """Sort the corners of boxes (N, 4) and clip them to images of ``shapes`` (N, 2: rows, columns; NaN: unknown).

    A box has an area if its corners are finite and both sides are longer than 0.
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    finite = np.isfinite(boxes).all(axis=1)
    finite_boxes = np.where(finite[:, None], boxes, 0.0)
    low = np.minimum(finite_boxes[:, :2], finite_boxes[:, 2:])
    high = np.maximum(finite_boxes[:, :2], finite_boxes[:, 2:])
    swapped = int((low != finite_boxes[:, :2]).any(axis=1).sum())
    limits = np.asarray(shapes, np.float64).reshape(-1, 2)[:, ::-1]
    most = np.where(np.isfinite(limits), limits, np.inf)
    sorted_ = np.concatenate([low, high], axis=1)
    cut = np.clip(sorted_, 0.0, np.concatenate([most, most], axis=1))
    sides = cut[:, 2:] - cut[:, :2]
    area = finite & (sides > 0).all(axis=1)
    return CleanBoxes(cut, area, swapped, int(((cut != sorted_).any(axis=1) & area).sum()))


def add_boxes(
    records: SourceRecords, image_id: str, kind: str, name: str, boxes: np.ndarray, shape: tuple, *,
    record_kind: str | None = None, **more: object,
) -> int:  # fmt: skip
    """Add the boxes (N, 4) of one name, in original pixels, and return how many were added.

    Boxes without an area are excluded and counted as ``record_kind`` (default: ``kind``). ``shape``: (rows, columns) of
    the image, None if unknown.
    """
    size = [np.nan if side is None else side for side in shape]
    cleaned = clean_boxes(boxes, np.tile(size, (len(boxes), 1)))
    for count_name, number in (("boxes with swapped corners", cleaned.swapped), ("boxes clipped", cleaned.clipped)):
        records.counts[count_name] += number
    record_kind = kind if record_kind is None else record_kind
    records.exclude("no_area", image_id, detail=kind, record_kind=record_kind, rows=int((~cleaned.area).sum()))
    records.facts += box_facts(image_id, kind, name, cleaned.boxes[cleaned.area], **more)
    return int(cleaned.area.sum())


def label_table_facts(table: pl.DataFrame, labels: Sequence[str], uncertain: str) -> pl.DataFrame:
    """Return the label facts of a table with ``image_id`` and one column per label (value or null).

    Like :func:`image_label_facts`, but every image gets No Finding.
    """
    label_names = load_label_names()
    meant_as = {UNCERTAIN: uncertain if uncertain in (PRESENT, ABSENT) else UNCERTAIN}
    stated_table = table.select("image_id", *labels)
    values = stated_table.with_columns(pl.col(labels).replace(meant_as))
    findings = [label for label in label_names.findings if label in labels]
    nothing = (
        pl.when(pl.any_horizontal(pl.col(findings) == PRESENT)).then(pl.lit(ABSENT))
        .when(pl.any_horizontal(pl.col(findings) == UNCERTAIN)).then(pl.lit(UNCERTAIN))
        .otherwise(pl.lit(PRESENT))
    )  # fmt: skip
    values = values.with_columns(nothing.alias(label_names.no_finding))
    if label_names.no_finding not in labels:
        stated_table = stated_table.with_columns(pl.lit(None, pl.String).alias(label_names.no_finding))
    order = [label_names.no_finding, *(label for label in labels if label != label_names.no_finding)]
    value, stated = (
        part.unpivot(order, index="image_id", variable_name="name", value_name=name)
        for part, name in ((values, "value"), (stated_table, "stated"))
    )
    facts = value.with_columns(stated["stated"]).drop_nulls("value")
    return complete_facts(facts.with_columns(pl.lit(LABEL).alias("kind")))


def complete_facts(table: pl.DataFrame) -> pl.DataFrame:
    """Return facts without ids in the order of their columns; columns that the table lacks are null."""
    return table.select(
        pl.col(name) if name in table.columns else pl.lit(None, dtype).alias(name)
        for name, dtype in FACTS_SCHEMA.items()
        if name != "fact_id"
    )


def count_labels(records: SourceRecords, table: pl.DataFrame, key: str, joined: pl.DataFrame) -> None:
    """Count the rows of a label table as used, without a used image, or repeated.

    ``joined``: the images, with ``known`` set where they have labels.
    """
    used = joined.drop_nulls("known")[key].unique()
    is_first = table[key].is_first_distinct()
    has_image = table[key].is_in(used.implode()).fill_null(False)
    records.num_rows[LABELS] += table.height
    records.num_kept[LABELS] += len(used)
    records.num_excluded[LABELS, "no_image"] += int((is_first & ~has_image).sum())
    records.num_excluded[LABELS, "bad_row"] += int((~is_first).sum())


def facts_table(source: str, rows: Iterable[dict], tables: Sequence[pl.DataFrame] = ()) -> pl.DataFrame:
    """Return the facts with their ids, sorted by image, kind, name and id; repeated rows get distinct ids."""
    first = pl.DataFrame(list(rows), schema={name: kind for name, kind in FACTS_SCHEMA.items() if name != "fact_id"})
    table = pl.concat([first, *tables])
    parts = ("image_id", "kind", "name", "group", "reader", *CORNERS)
    num_by_row: Counter[tuple] = Counter()
    ids = []
    for row in table.select(parts).iter_rows():
        num_repeats = num_by_row[row]
        num_by_row[row] += 1
        id_parts = ["" if part is None else part for part in row]
        ids.append(f"f{stable_hash(source, *id_parts, *([num_repeats] if num_repeats else [])):016x}")
    table = table.with_columns(fact_id=pl.Series(ids, dtype=pl.String)).select(list(FACTS_SCHEMA))
    return table.sort("image_id", "kind", "name", "fact_id")
