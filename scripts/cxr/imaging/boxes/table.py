"""The engine ``table``: reads boxes of any detector from a CSV or Parquet table and clips them to the frame.

The table has a row per box with the columns image_id, x1, y1, x2, y2, confidence (0..1) and class_name (VinBigData's).
"""

import logging

import numpy as np
import polars as pl

from cxr.base.errors import UserError, count_phrase
from cxr.base.user_tables import fold_name, read_frame, require_columns
from cxr.base.vocabulary import BOX_CLASSES
from cxr.geometry.affine import boxes_to_frame
from cxr.geometry.boxes import CORNERS, confidence_order
from cxr.imaging.boxes.engine import Detections
from cxr.imaging.boxes.settings import BoxesSettings

log = logging.getLogger("cxr.imaging.boxes")
NUMBERS = [*CORNERS, "confidence"]
COLUMNS = ["image_id", *NUMBERS, "class_name"]


def read_boxes(path: str) -> pl.DataFrame:
    """Read the table and check its columns, numbers and class names. Raises UserError if they are invalid."""
    table = read_frame(path, "boxes.table", COLUMNS, ids=("image_id",))
    require_columns(table.columns, COLUMNS, path, "boxes.table")
    table = table.select(pl.col(COLUMNS).replace("", None))
    try:
        table = table.with_columns(pl.col(NUMBERS).str.strip_chars().cast(pl.Float64))
    except pl.exceptions.PolarsError:
        raise UserError(f"boxes.table {path!r} holds text in one of {', '.join(NUMBERS)}: give numbers") from None
    class_by_spelling = {fold_name(name): name for name in BOX_CLASSES}
    names = table["class_name"].drop_nulls().unique().sort().to_list()
    if unknown := [name for name in names if fold_name(name) not in class_by_spelling]:
        raise UserError(
            f"boxes.table {path!r} holds the class_name {unknown[0]!r}: rename it to one of {', '.join(BOX_CLASSES)}"
        )
    spellings = {name: class_by_spelling[fold_name(name)] for name in names}
    return table.with_columns(pl.col("class_name").replace(spellings))


def drop_invalid_rows(table: pl.DataFrame) -> tuple[pl.DataFrame, dict[str, int]]:
    """Return the rows with valid boxes, and {reason: number of dropped rows}."""
    numbers = [pl.col(name).is_null() | ~pl.col(name).is_finite() for name in NUMBERS]
    faults = {
        "no_name": pl.col("image_id").is_null() | pl.col("class_name").is_null(),
        "not_a_number": pl.any_horizontal(numbers),
        "confidence_out_of_range": ~pl.col("confidence").is_between(0, 1),
        "no_area": (pl.col("x2") <= pl.col("x1")) | (pl.col("y2") <= pl.col("y1")),
    }
    dropped = {}
    for reason, fault in faults.items():
        num_rows, table = len(table), table.filter(~fault)
        if len(table) < num_rows:
            dropped[reason] = num_rows - len(table)
    return table, dropped


class TableEngine:
    """An engine that looks up boxes by image_id."""

    class_names = BOX_CLASSES

    def __init__(self, options: BoxesSettings):
        self.options = options
        table, self.dropped = drop_invalid_rows(read_boxes(options.table))
        if self.dropped:
            counts = ", ".join(f"{count} {reason}" for reason, count in self.dropped.items())
            num_rows = count_phrase(sum(self.dropped.values()), "row", "rows")
            log.warning("%s of boxes.table dropped: %s", num_rows, counts)
        self.rows = {key[0]: group for key, group in table.partition_by("image_id", as_dict=True).items()}
        self.image_ids = frozenset(self.rows)

    def detect(self, image: np.ndarray, image_id: str, to_original: np.ndarray) -> Detections:
        """Return the boxes of a frame; see :class:`cxr.imaging.boxes.engine.BoxEngine`."""
        rows = self.rows.get(image_id)
        if rows is None:
            return Detections(np.zeros((0, 4)), np.zeros(0), [])
        boxes = rows.select(CORNERS).to_numpy()
        if self.options.table_pixels == "original":
            boxes = boxes_to_frame(boxes, to_original)
        height, width = image.shape
        boxes = np.clip(boxes, 0.0, np.array([width, height, width, height], np.float64))
        confidence, names = rows["confidence"].to_numpy(), rows["class_name"].to_list()
        index = np.array([BOX_CLASSES.index(name) for name in names])
        fits = (boxes[:, 2] > boxes[:, 0]) & (boxes[:, 3] > boxes[:, 1]) & (confidence >= self.options.floor)
        order = [i for i in confidence_order(boxes, confidence, index) if fits[i]][: self.options.max_boxes]
        return Detections(boxes[order], confidence[order], [names[i] for i in order])


def load(options: BoxesSettings, setup: object = None) -> TableEngine:
    """Load the engine with its table. Raises UserError if a column is missing or a value is invalid."""
    return TableEngine(options)
