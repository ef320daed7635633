"""Records of a source (images, texts, and facts: labels, boxes, regions, phrases), reader options and output files."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import polars as pl

from cxr.annotations import label_tables
from cxr.base.columns import Column, Columns, read_columns, schema
from cxr.base.conservation import ALL, CONSERVED, CountRow, counted_rows
from cxr.base.errors import UserError
from cxr.base.seeds import stable_hash
from cxr.base.tables import write_excluded, write_lines, write_rows, write_table
from cxr.geometry.boxes import CORNERS
from cxr.radvlm.labels import ABSENT, PRESENT, UNCERTAIN, VALUES, load_label_names, resolve_uncertain

RESOURCE_FILES = ("columns/radvlm_sources.toml",)
IMAGE_COLUMNS = read_columns("radvlm_sources", "images")
FACT_COLUMNS = read_columns("radvlm_sources", "facts")
COUNT_COLUMNS: Columns = {"what": Column(pl.String, "What is counted."), "number": Column(pl.Int64, "Number.")}
IMAGES_SCHEMA, FACTS_SCHEMA = schema(IMAGE_COLUMNS), schema(FACT_COLUMNS)


@dataclass(frozen=True)
class ReadOptions:
    """Options of the reader of a source."""

    name: str  # name of the source
    source: Mapping[str, str]  # settings of the source: format, path, pictures, reports, subject
    uncertain: str  # setting radvlm.sources.uncertain
    split: str  # setting radvlm.sources.split
    max_characters: int  # length of the longest report that is read
    section_overrides: bool  # setting reports.section_overrides
    seed: int  # seed of the splits that a source does not give
    shares: Sequence[float]  # fractions of subjects in train, validate and test, where a source gives no splits

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

    @property
    def reports(self) -> Path:
        """Folder of the reports of a source of format mimic."""
        return Path(self.source["reports"] or self.pictures)


LABEL, BOX, REGION, PHRASE = KINDS = ("label", "box", "region", "phrase")
STAGE = "radvlm_sources"
KEPT = "kept"
IMAGES, LABELS, TEXTS, FUSED = "images", "labels", "texts", "fused boxes"  # kinds of counted records, besides facts
UNNAMED_BOX = "a box without a name"
_WRAPPED = re.compile(r"(?<!\n)\n(?!\n|(?:\d{1,2}[.)]|[-*•]) )")
IMAGE_ENDINGS = (".png", ".jpg", ".jpeg", ".dcm")
NUM_CHECKED = 20  # number of first images of a source, at least one of which must exist
OUTPUTS = ("images", "facts", "texts", "excluded", "counts", "conservation")  # output files of a source


@dataclass
class SourceRecords:
    """The records that a reader collects from its source."""

    images: list[dict] = field(default_factory=list)  # rows of images
    facts: list[dict] = field(default_factory=list)  # rows of facts, without ids
    tables: list[pl.DataFrame] = field(default_factory=list)  # tables of further facts, for sources with millions
    texts: list[dict] = field(default_factory=list)  # output lines of texts
    excluded: list[dict] = field(default_factory=list)  # rows of exclusions
    counts: Counter = field(default_factory=Counter)  # {what is counted: number}
    num_rows: Counter = field(default_factory=Counter)  # {record kind: rows of the source}
    num_kept: Counter = field(default_factory=Counter)  # {record kind: rows in the results}, except images and texts
    num_excluded: Counter = field(default_factory=Counter)  # {(record kind, reason): excluded rows}

    def exclude(
        self, reason: str, image_id: str | None = None, study_id: str | None = None, detail: str = "", *,
        record_kind: str = "", number: int = 1, rows: int = 1,
    ) -> None:  # fmt: skip
        """Add ``rows`` equal exclusions. Each counts as ``number`` records of ``record_kind`` ("": not counted)."""
        row = {"image_id": image_id, "study_id": study_id, "stage": STAGE, "reason": reason, "detail": detail}
        self.excluded += [row] * rows
        if record_kind and rows:
            self.num_excluded[record_kind, reason] += number * rows

    def conservation_rows(self, source: str) -> list[CountRow]:
        """Return numbers of read, kept and excluded records by kind. Raises AssertionError if they do not add up."""
        conserved_rows, num_kept = [], self.num_kept + Counter({IMAGES: len(self.images), TEXTS: len(self.texts)})
        excluded = sorted(self.num_excluded.items())
        for record_kind in sorted({*self.num_rows, *num_kept, *(kind for kind, _ in self.num_excluded)}):
            parts = {KEPT: num_kept[record_kind]}
            parts |= {reason: number for (kind, reason), number in excluded if kind == record_kind}
            conserved_rows += counted_rows(f"{STAGE}, {source}", record_kind, self.num_rows[record_kind], parts)
        return conserved_rows

    def count_unknown_cells(self, cells: Mapping[str, int]) -> None:
        """Count label cells with unknown values, which give no fact. ``cells``: {label: number of cells}."""
        for label, number in sorted(cells.items()):
            self.counts[f"unknown_label: cells of {label}"] += number

    def add_text(self, options: ReadOptions, row: Mapping, image_ids: Sequence[str], section: str, text: str) -> None:
        """Add a study's text, or exclude it if it is empty or too long. ``row``: row of any image of the study."""
        self.num_rows[TEXTS] += 1
        if not text:
            self.exclude("empty_report", image_ids[0], row["study_id"], record_kind=TEXTS)
        elif len(text) > options.max_characters:
            self.exclude("too_long", image_ids[0], row["study_id"], f"{len(text)} characters", record_kind=TEXTS)
        else:
            self.texts.append(text_line(options.name, row, image_ids, section, text))

    def add_boxes(
        self, image_id: str, kind: str, name: str, boxes: np.ndarray, shape: tuple, *, record_kind: str | None = None,
        detail: str = "", **columns: object,
    ) -> np.ndarray:  # fmt: skip
        """Add the boxes (N, 4) of one name, in px of the original image, as facts. Return the added boxes, clipped.
        Boxes without an area are excluded. ``shape``: (rows, columns) of the image, None if unknown; ``record_kind``:
        kind of record to count (default: ``kind``; "": none); ``columns``: further columns of the facts."""
        shapes = np.tile(np.array(shape, np.float64), (len(boxes), 1))
        clean, has_area, num_swapped, num_clipped = clean_boxes(boxes, shapes)
        self.counts.update({"boxes with swapped corners": num_swapped, "boxes clipped": num_clipped})
        record_kind = kind if record_kind is None else record_kind
        num_flat = int((~has_area).sum())
        self.exclude("no_area", image_id, detail=detail or kind, record_kind=record_kind, rows=num_flat)
        boxes_with_area = clean[has_area]
        self.facts += box_facts(image_id, kind, " ".join(name.split()), boxes_with_area, **columns)
        if record_kind:
            self.num_kept[record_kind] += len(boxes_with_area)
        return boxes_with_area

    def add_label_table(self, images: pl.DataFrame, labels: pl.DataFrame, key: str, options: ReadOptions) -> None:
        """Add the labels of images, joined by the column ``key``. Exclude repeated rows, and rows without an image."""
        unique_labels = labels.unique(key, keep="first", maintain_order=True).with_columns(known=pl.lit(True))
        joined = images.join(unique_labels, on=key, how="left", maintain_order="left")
        for image_id, study_id in joined.filter(pl.col("known").is_null()).select("image_id", "study_id").iter_rows():
            self.exclude("no_labels", image_id, study_id)
        used_keys = joined.drop_nulls("known")[key].unique()
        is_first, has_image = labels[key].is_first_distinct(), labels[key].is_in(used_keys.implode()).fill_null(False)
        self.num_rows[LABELS] += labels.height
        self.num_kept[LABELS] += len(used_keys)
        self.num_excluded[LABELS, "no_image"] += int((is_first & ~has_image).sum())
        self.num_excluded[LABELS, "bad_row"] += int((~is_first).sum())
        self.tables.append(label_table_facts(joined.drop_nulls("known"), label_tables.LABELS, options.uncertain))


def text_line(source: str, row: Mapping, image_ids: Sequence[str], section: str, text: str) -> dict:
    """Return the output line of a study's text. ``row``: row of any image of the study."""
    ids = {"source": source} | {name: row[name] for name in ("study_id", "subject_id", "split")}
    return ids | {"image_ids": sorted(image_ids), "section": section, "text": normalize_blanks(text)}


def normalize_blanks(text: str) -> str:
    """Return a text with single blanks and with wrapped lines joined. Control characters become blanks. Blank lines and
    list items keep their line breaks."""
    printable = "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)
    lines = "\n".join(" ".join(line.split()) for line in printable.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", _WRAPPED.sub(" ", lines)).strip()


def find_ending(options: ReadOptions, names: Sequence[str]) -> str | None:
    """Return the ending of a source's image files if it differs from the ending in the source's table, else None.
    ``names``: image paths in the table. Raises UserError if none of the first NUM_CHECKED exists with any ending."""
    paths = [options.pictures / name for name in names[:NUM_CHECKED]]
    for ending in (None, *IMAGE_ENDINGS):
        if any((path.with_suffix(ending) if ending else path).is_file() for path in paths) or not paths:
            return ending
    raise UserError(
        f"{options.key.removesuffix('path')}pictures: none of the first {len(paths)} images of {options.name}, such as "
        f"{paths[0]}, exists with any of the endings {', '.join(IMAGE_ENDINGS)}: give the folder of these images"
    )


def box_facts(image_id: str, kind: str, name: str, boxes: np.ndarray, **columns: object) -> list[dict]:
    """Return one fact per box (N, 4). These facts share a group id. ``columns``: further columns of each fact."""
    group = f"g{stable_hash(image_id, kind, name, *columns.values()):016x}"
    shared_columns = {"image_id": image_id, "kind": kind, "name": name, "group": group} | columns
    return [shared_columns | dict(zip(CORNERS, map(float, box), strict=True)) for box in boxes]


def image_label_facts(image_id: str, stated: dict[str, str], uncertain: str) -> list[dict]:
    """Return one fact per label. ``stated``: {label: value}; ``uncertain``: as in :func:`resolve_uncertain`."""
    return [
        {"image_id": image_id, "kind": LABEL, "name": name, "value": value, "stated": stated[name]}
        for name, value in resolve_uncertain(stated, uncertain).items()
    ]


def clean_boxes(boxes: np.ndarray, shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray, int, int]:
    """Sort the corners of boxes (N, 4) and clip the boxes to their images.

    ``shapes``: (rows, columns) of the image of each box, (N, 2), NaN if unknown. Return (boxes, whether each has an
    area, bool (N,), number of boxes with swapped corners, number of clipped boxes). A box has an area if its corners
    are finite and both sides are longer than 0.
    """
    boxes = np.asarray(boxes, np.float64).reshape(-1, 4)
    finite = np.isfinite(boxes).all(axis=1)
    corners = np.where(finite[:, None], boxes, 0.0).reshape(-1, 2, 2)
    sorted_boxes = np.sort(corners, axis=1).reshape(-1, 4)
    limits = np.asarray(shapes, np.float64).reshape(-1, 2)[:, ::-1]
    most = np.tile(np.where(np.isfinite(limits), limits, np.inf), 2)
    clipped = np.clip(sorted_boxes, 0.0, most)
    has_area = finite & (clipped[:, 2:] > clipped[:, :2]).all(axis=1)
    num_swapped = int((sorted_boxes[:, :2] != corners[:, 0]).any(axis=1).sum())
    return clipped, has_area, num_swapped, int(((clipped != sorted_boxes).any(axis=1) & has_area).sum())


def label_table_facts(table: pl.DataFrame, labels: Sequence[str], uncertain: str) -> pl.DataFrame:
    """Return the label facts of a table with a column per label. Derive "No Finding" from the other labels.
    ``uncertain``: as in :func:`resolve_uncertain`."""
    no_finding, findings = load_label_names().no_finding, load_label_names().findings
    names = list(dict.fromkeys((*labels, no_finding)))
    stated = table.select("image_id", *names if no_finding in labels else (*labels, pl.lit(None).alias(no_finding)))
    values = stated.with_columns(pl.col(labels).replace({UNCERTAIN: uncertain if uncertain in VALUES else UNCERTAIN}))
    labelled = pl.col([label for label in findings if label in labels])
    is_any = {value: pl.any_horizontal(labelled == value) for value in (PRESENT, UNCERTAIN)}
    absent, unsure, present = map(pl.lit, (ABSENT, UNCERTAIN, PRESENT))
    nothing = pl.when(is_any[PRESENT]).then(absent).when(is_any[UNCERTAIN]).then(unsure).otherwise(present)
    values = values.with_columns(nothing.alias(no_finding))
    value_names = {"variable_name": "name", "value_name": "value"}
    value, stated_value = (part.unpivot(names, index="image_id", **value_names) for part in (values, stated))
    facts = value.with_columns(kind=pl.lit(LABEL), stated=stated_value["value"].cast(pl.String))
    return facts.drop_nulls("value")


def facts_table(source: str, rows: Iterable[dict], tables: Sequence[pl.DataFrame] = ()) -> pl.DataFrame:
    """Return a table of facts with ids, sorted by image, kind, name and id. Equal rows get different ids."""
    first = pl.DataFrame(list(rows), schema={name: kind for name, kind in FACTS_SCHEMA.items() if name != "fact_id"})
    table = pl.concat([first, *tables], how="diagonal")  # columns that a table lacks become null
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


def write_source(records: SourceRecords, source: str, outputs: Mapping[str, str]) -> None:
    """Write the output files (OUTPUTS) of a source. Raises AssertionError if a record is lost or counted twice."""
    table = facts_table(source, records.facts, records.tables)
    all_counts = Counter(records.counts)
    all_counts.update(f"facts: {kind}" for kind in table["kind"])
    all_counts.update(f"left out: {row['reason']}" for row in records.excluded)
    all_counts["texts"] = len(records.texts)
    image_rows = sorted(records.images, key=lambda row: row["image_id"])
    write_rows(outputs["images"], ({"source": source} | row for row in image_rows), IMAGE_COLUMNS)
    write_table(outputs["facts"], table, FACT_COLUMNS)
    write_lines(outputs["texts"], sorted(records.texts, key=lambda line: line["study_id"]), checked=True)
    write_excluded(outputs["excluded"], records.excluded)
    write_rows(outputs["counts"], sorted(all_counts.items()), COUNT_COLUMNS)
    write_table(outputs["conservation"], conservation_table(records.conservation_rows(source)), CONSERVED)


def conservation_table(rows: Iterable[CountRow]) -> pl.DataFrame:
    """Sum rows (kind, outcome, number) of equal kind and outcome. Of each kind, ``all`` and ``kept`` come first."""
    total: Counter = Counter()
    for record_kind, outcome, number in rows:
        total[record_kind, outcome] += number
    sorted_totals = sorted(total.items(), key=lambda row: (row[0][0], row[0][1] != ALL, row[0][1] != KEPT, row[0][1]))
    return pl.DataFrame([(*key, number) for key, number in sorted_totals], schema=schema(CONSERVED), orient="row")
