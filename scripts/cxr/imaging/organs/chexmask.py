"""The engine ``chexmask``: published masks from the MIMIC-CXR table of the CheXmask database (PhysioNet).

:mod:`cxr.annotations.chexmask` describes the table. The public code that made it swaps height and width in some rows.
In these rows, the run lengths are clipped at the wrong border, so masks are drawn from the landmarks instead.
"""

import csv
import gzip
import io
import logging
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from cxr.annotations import chexmask
from cxr.annotations.chexmask import DICE, HEIGHT, WIDTH
from cxr.base.atomic import atomic_file
from cxr.base.engines import Setup
from cxr.base.errors import StoreError, UserError
from cxr.base.hdf5 import FRAME_SIZE
from cxr.base.tables import read_table
from cxr.base.vocabulary import ORGAN_LABELS
from cxr.geometry.affine import to_frame
from cxr.imaging.organs.engine import LANDMARKS, NoOrgans, fill_outlines
from cxr.imaging.organs.settings import OrgansSettings

SOURCES = ("table",)
INPUTS = {"rows": "results/organs/chexmask/{shard}.csv.gz"}
"""The table's rows for one shard. A separate rule splits the table once (:func:`split_table`)."""
KEY = "organs.chexmask.table"
MAX_BUFFERED_CHARACTERS = 64 * 2**20  # maximum number of buffered characters of all shards together
log = logging.getLogger("cxr.imaging.organs")


def split_table(*, table: str, cohort: list[str], output: list[str]) -> None:
    """Split the table into one gzipped CSV per shard.

    ``cohort``: the image table of each shard; ``output``: one path per shard, in the same order. Raises UserError
    if :func:`cxr.annotations.chexmask.stream_rows` cannot read the table.
    """
    shard_of = {name: number for number, path in enumerate(cohort) for name in read_table(path)["image_id"]}
    with ExitStack() as stack:
        parts = [stack.enter_context(atomic_file(path)) for path in output]
        waiting: list[list[list[str | None]]] = [[chexmask.COLUMNS] for _ in parts]
        num_buffered = num_rows = 0
        for row in chexmask.stream_rows(KEY, table, list(shard_of)):
            waiting[shard_of[row[chexmask.IDS]]].append(list(row.values()))
            num_rows += 1
            num_buffered += sum(len(value or "") for value in row.values())
            if num_buffered > MAX_BUFFERED_CHARACTERS:
                _append_rows(parts, waiting)
                num_buffered = 0
        _append_rows(parts, waiting)
    log.info("chexmask: the table has %d rows of the cohort's %d images", num_rows, len(shard_of))


def _append_rows(parts: list[Path], waiting: list[list[list[str | None]]]) -> None:
    for part, rows in zip(parts, waiting, strict=True):
        if rows:
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(rows)
            with open(part, "ab") as file:
                file.write(gzip.compress(text.getvalue().encode(), compresslevel=1, mtime=0))
            rows.clear()


class ChexmaskOrgans:
    """An engine that looks up published masks of lungs and heart. It rejects masks with a low estimated Dice."""

    labels = ORGAN_LABELS

    def __init__(self, path: str, min_dice: float):
        self._path, self._min_dice = path, min_dice
        self._rows: dict[str, chexmask.Row | None] = {}

    def prepare(self, image_ids: list[str]) -> None:
        """Read the rows of ``image_ids``. Raises StoreError if the shard's file is missing or damaged."""
        try:
            self._rows = chexmask.read_rows(KEY, self._path, image_ids)
        except UserError:
            raise StoreError(f"{self._path} is missing or damaged: delete it and run again") from None
        log.info("chexmask: the table has %d of the %d images", len(self._rows), len(image_ids))
        if image_ids and not self._rows:
            log.warning("chexmask: none of the images is in the table: an image_id must be MIMIC-CXR's dicom_id")

    def segment(self, image: np.ndarray, image_id: str, to_original: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        """Return the masks of a frame; see :class:`cxr.imaging.organs.engine.OrganEngine`. Raises NoOrgans."""
        if image_id not in self._rows:
            raise NoOrgans("the CheXmask table has no row for the image")
        row = self._rows[image_id]
        if row is None:
            raise NoOrgans(f"{DICE}, {HEIGHT} or {WIDTH} in the CheXmask table is not a number")
        if row.dice < self._min_dice:
            raise NoOrgans(f"{DICE} is {row.dice:.3f}, below min_dice {self._min_dice}")
        masks = _decode_masks(row, shape)
        return np.stack([to_frame(mask, to_original, FRAME_SIZE, nearest=True) for mask in masks]).astype(bool)


def _decode_masks(row: chexmask.Row, shape: tuple[int, int]) -> np.ndarray:
    try:
        if row.shape == shape:
            return np.stack([chexmask.decode_runs(text, shape) for text in row.runs])
        if row.shape == shape[::-1]:
            return fill_outlines(chexmask.decode_points(row.points, LANDMARKS), shape)
    except ValueError as error:
        raise NoOrgans(f"the row in the CheXmask table is damaged: {error}") from None
    sizes = " x ".join(map(str, row.shape)), " x ".join(map(str, shape))
    raise NoOrgans("the CheXmask table says {} pixels, but the image has {}".format(*sizes))


def load(options: OrgansSettings, setup: Setup) -> ChexmaskOrgans:
    """Load the engine. Its method ``prepare`` reads the rows later."""
    return ChexmaskOrgans(setup.files["rows"], options.chexmask.min_dice)
