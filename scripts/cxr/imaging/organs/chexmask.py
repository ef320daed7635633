"""Masks that were published: the MIMIC-CXR table of the CheXmask database (PhysioNet), looked up by image.

A row: dicom_id, estimated Dice, 120 landmarks (x, y), runs of pixels for each organ, Height and Width, all in pixels
of the original picture. Runs are "start length" pairs along the rows, the first pixel being 1. The public code that
made the table takes the height of a picture for its width; where a row says so, its runs were cut off at the wrong
border, and the outlines are drawn from the landmarks instead.
"""

import logging
import math
import re
from dataclasses import dataclass

import numpy as np

from cxr.base.engines import Setup
from cxr.base.errors import StoreError, UserError
from cxr.base.hdf5 import FRAME_SIZE
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.geometry.affine import to_frame
from cxr.imaging.organs.chexmask_table import DICE, HEIGHT, IDS, POINTS, RUNS, WIDTH, rows_of
from cxr.imaging.organs.engine import NoOrgans
from cxr.imaging.organs.outline import LANDMARKS, fill

SOURCES = ("table",)
INPUTS = {"rows": "results/organs/chexmask/{shard}.csv.gz"}
"""The shard's rows of the table, which a rule of its own splits once (:mod:`cxr.imaging.organs.chexmask_table`)."""
log = logging.getLogger("cxr.imaging.organs")


@dataclass(frozen=True)
class Row:
    """A row of the table: estimated Dice, size in pixels, landmarks and runs as the text that they are."""

    dice: float
    shape: tuple[int, int]
    points: str
    runs: tuple[str, ...]


def decode_runs(text: str, shape: tuple[int, int]) -> np.ndarray:
    """Return uint8 (rows, columns), 1 in the runs. Raises ValueError for runs that are none or leave the picture."""
    try:
        numbers = np.array(text.split(), np.int64)
    except OverflowError:
        raise ValueError("a number with too many digits") from None
    if numbers.size % 2:
        raise ValueError("a run without a length")
    starts, lengths = numbers[::2] - 1, numbers[1::2]
    flat = np.zeros(shape[0] * shape[1], np.uint8)
    if ((starts < 0) | (lengths < 0) | (lengths > flat.size) | (starts > flat.size - lengths)).any():
        raise ValueError("a run outside the picture")
    for start, end in zip(starts, starts + lengths, strict=True):
        flat[start:end] = 1
    return flat.reshape(shape)


def decode_points(text: str) -> np.ndarray:
    """Return float64 (120, 2: x, y) of a list or a printed array. Raises ValueError for another count of numbers."""
    numbers = [float(number) for number in re.findall(r"-?\d+(?:\.\d*)?(?:e[+-]?\d+)?", text)]
    if len(numbers) != 2 * LANDMARKS:
        raise ValueError(f"{len(numbers)} numbers instead of {2 * LANDMARKS}")
    return np.array(numbers).reshape(LANDMARKS, 2)


def _row(values: dict[str, str | None]) -> Row | None:
    """Return a row, or None where one of its numbers is none."""
    try:
        dice, height, width = (float(values[name]) for name in (DICE, HEIGHT, WIDTH))
        shape = int(height), int(width)
    except (TypeError, ValueError, OverflowError):
        return None
    runs = tuple(values[name] or "" for name in RUNS.values())
    return None if math.isnan(dice) else Row(dice, shape, values[POINTS] or "", runs)


def read_rows(path: str, image_ids: list[str]) -> dict[str, Row | None]:
    """Return {image_id: row} of some images, of repeated rows the one with the highest Dice; None: not readable.

    Raises UserError as :func:`rows_of` does.
    """
    rows: dict[str, Row | None] = {}
    for values in rows_of(path, image_ids):
        image_id, row = values[IDS], _row(values)
        held = rows.get(image_id)
        if held is None or (row is not None and row.dice > held.dice):
            rows[image_id] = row
    return rows


class ChexmaskOrgans:
    """Right lung, left lung and heart as published, for images of good estimated quality."""

    labels = ORGAN_LABELS

    def __init__(self, path: str, min_dice: float):
        self._path, self._min_dice = path, min_dice
        self._rows: dict[str, Row | None] = {}

    def prepare(self, image_ids: list[str]) -> None:
        """Read the rows of these images. Raises StoreError for a damaged file."""
        try:
            self._rows = read_rows(self._path, image_ids)
        except UserError:
            raise StoreError(f"{self._path} is missing or damaged: delete it and run again") from None
        log.info("chexmask: the table has %d of the %d images", len(self._rows), len(image_ids))
        if image_ids and not self._rows:
            log.warning("chexmask: none of the images is in the table: an image_id must be MIMIC-CXR's dicom_id")

    def segment(
        self, image: np.ndarray, image_id: str, to_original: np.ndarray, original_shape: tuple[int, int]
    ) -> np.ndarray:
        """See :class:`cxr.imaging.organs.engine.OrganEngine`. Raises NoOrgans that says why there are no masks."""
        if image_id not in self._rows:
            raise NoOrgans("the CheXmask table has no row of the image")
        row = self._rows[image_id]
        if row is None:
            raise NoOrgans(f"{DICE}, {HEIGHT} or {WIDTH} is no number")
        if row.dice < self._min_dice:
            raise NoOrgans(f"{DICE} is {row.dice:.3f}, below {self._min_dice}")
        masks = _masks(row, original_shape)
        return np.stack([to_frame(mask, to_original, FRAME_SIZE, nearest=True) for mask in masks]).astype(bool)


def _masks(row: Row, shape: tuple[int, int]) -> np.ndarray:
    """Return uint8 (3, rows, columns) in pixels of the original. Raises NoOrgans for a row of another picture."""
    try:
        if row.shape == shape:
            return np.stack([decode_runs(text, shape) for text in row.runs])
        if row.shape == shape[::-1]:
            return fill(decode_points(row.points), shape)
    except ValueError as error:
        raise NoOrgans(f"the row in the CheXmask table is damaged: {error}") from None
    sizes = " x ".join(map(str, row.shape)), " x ".join(map(str, shape))
    raise NoOrgans("the CheXmask table has a picture of {} pixels, the image is {}".format(*sizes))


def load(options: object, setup: Setup) -> ChexmaskOrgans:
    """Load the engine; the rows are read when the images are known."""
    return ChexmaskOrgans(setup.files["rows"], setup.own["min_dice"])
