"""Reader of the CheXmask database's table for MIMIC-CXR (PhysioNet), with lungs and heart segmented by a network.

A row has dicom_id, estimated Dice, 120 landmarks (x, y), run lengths of each organ, Height and Width, in pixels of the
original image. Run lengths are pairs "start length" in row order, and the first pixel is 1. The table is 15 GB of text,
so it is streamed, and only the requested images are kept. No human drew its masks, so it is no annotation format."""

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.user_tables import require_columns

IDS, DICE, HEIGHT, WIDTH, POINTS = "dicom_id", "Dice RCA (Mean)", "Height", "Width", "Landmarks"
RUNS = {"right lung": "Right Lung", "left lung": "Left Lung", "heart": "Heart"}
COLUMNS = [IDS, DICE, HEIGHT, WIDTH, POINTS, *RUNS.values()]
LINES = [name for name in COLUMNS if name != POINTS]  # columns whose cells hold a single line
REMEDY = "give the file OriginalResolution/MIMIC-CXR-JPG.csv of the CheXmask database"
BATCH = 64  # rows per block of the stream; one row takes about 60 kB


class Row(NamedTuple):
    """A row of CheXmask's table. Landmarks and run lengths are texts that are not decoded yet."""

    dice: float  # estimated Dice
    shape: tuple[int, int]  # (rows, columns) of the image
    points: str  # text of the landmarks
    runs: tuple[str, ...]  # texts of the run lengths, in the order of :data:`RUNS`


def stream_rows(key: str, path: str | Path, image_ids: list[str]) -> Iterator[dict[str, str]]:
    """Yield the rows of the given images, {column: text}, in the table's order. ``key`` is the setting of the file.
    Only 64 rows are in memory at a time. Raises UserError if the file is damaged or is not CheXmask's table."""
    try:
        table = pl.scan_csv(path, infer_schema=False)
        require_columns(table.collect_schema().names(), COLUMNS, path, key, REMEDY)
        # a stray quotation mark joins lines; only landmarks may span several lines
        joined = pl.any_horizontal(pl.col(LINES).str.contains("\n", literal=True))
        selected_rows = table.select(COLUMNS).filter(pl.col(IDS).is_in(image_ids) | joined)
        for batch in selected_rows.collect_batches(chunk_size=BATCH, maintain_order=True):
            for row in batch.iter_rows(named=True):
                if any("\n" in (row[name] or "") for name in LINES):
                    raise UserError(f"{key} {str(path)!r} has a quotation mark that joins lines: download it again")
                yield row
    except (OSError, pl.exceptions.PolarsError) as error:
        refuse_machine_fault(path, error)
        cause = type(error).__name__
        raise UserError(f"{key} is {str(path)!r}, which is damaged ({cause}): download it again") from None


def read_rows(key: str, path: str | Path, image_ids: list[str]) -> dict[str, Row | None]:
    """Return {image id: row, or None if it cannot be parsed} for ``image_ids``. If an image has several rows, the one
    with the highest Dice is kept. ``key``: setting that names the file ``path``."""
    rows: dict[str, Row | None] = {}
    for values in stream_rows(key, path, image_ids):
        image_id, row = values[IDS], _parse_row(values)
        previous = rows.get(image_id)
        if previous is None or (row is not None and row.dice > previous.dice):
            rows[image_id] = row
    return rows


def _parse_row(values: dict[str, str]) -> Row | None:
    with suppress(TypeError, ValueError, OverflowError):
        dice, height, width = (float(values[name]) for name in (DICE, HEIGHT, WIDTH))
        runs = tuple(values[name] or "" for name in RUNS.values())
        row = Row(dice, (int(height), int(width)), values[POINTS] or "", runs)
        return None if math.isnan(dice) else row
    return None


def decode_runs(text: str, shape: tuple[int, int]) -> np.ndarray:
    """Decode run lengths, a text of pairs "start length", to a mask, uint8 ``shape``. Raises ValueError if they are
    malformed or leave the image."""
    try:
        numbers = np.array(text.split(), np.int64)
    except OverflowError:
        raise ValueError("a number with too many digits") from None
    if numbers.size % 2:
        raise ValueError("a run without a length")
    starts, lengths = numbers[::2] - 1, numbers[1::2]
    flat = np.zeros(shape[0] * shape[1], np.uint8)
    if ((starts < 0) | (lengths < 0) | (lengths > flat.size) | (starts > flat.size - lengths)).any():
        raise ValueError("a run outside the image")
    for start, end in zip(starts, starts + lengths, strict=True):
        flat[start:end] = 1
    return flat.reshape(shape)


def decode_points(text: str, count: int) -> np.ndarray:
    """Parse the text of a list of points, such as "[[1 2] [3 4]]", and return them as float64 (count, 2: x, y). Raises
    ValueError if there are more or fewer than ``count`` points."""
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?", text)]
    if len(numbers) != 2 * count:
        raise ValueError(f"{len(numbers)} numbers instead of {2 * count}")
    return np.array(numbers).reshape(count, 2)
