"""Readers of the formats ``ms_cxr`` and ``imagenome``, which annotate the images of a source of format ``mimic``."""

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path

import numpy as np

from cxr.annotations import imagenome
from cxr.annotations.label_tables import read_columns
from cxr.annotations.ms_cxr import read as read_table_of_ms_cxr
from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.geometry.affine import boxes_to_upright
from cxr.geometry.turns import UPRIGHT
from cxr.imaging.cohort.header import read_turn
from cxr.radvlm.sources.facts import IMAGES, PHRASE, REGION, UNNAMED_BOX, ReadOptions, SourceRecords

SPLIT_FOLDER = "silver_dataset/splits"
AVOID_TABLE = "images_to_avoid.csv"
SPLIT_TABLES = {"train": "train.csv", "validate": "valid.csv", "test": "test.csv"}  # files of Chest ImaGenome


def read_ms_cxr(options: ReadOptions, images: str) -> SourceRecords:
    """Return the phrases with boxes. Boxes with the same image and text form one phrase. ``images``: image table of the
    source of format ``mimic``. Raises UserError if the table of phrases is missing."""
    path = options.folder
    if path.is_dir():
        tables = [table for ending in ("csv", "csv.gz", "json") for table in sorted(path.glob(f"MS_CXR*.{ending}"))]
        if not tables:
            raise UserError(f"{options.key}: {path} lacks MS_CXR_Local_Alignment_*.csv: give the folder of MS-CXR")
        path = tables[0]
    image_of = lambda region: region.image.removesuffix(".dcm")  # noqa: E731
    regions = read_table_of_ms_cxr(options.key, path).regions
    regions = sorted(regions, key=lambda region: (image_of(region), region.phrase))
    row_by_image = read_table(images).rows_by_key("image_id", named=True, include_key=True, unique=True)
    records = SourceRecords()
    records.counts["table rows"] = records.num_rows[PHRASE] = len(regions)
    for image_id, image_regions in groupby(regions, image_of):
        row = row_by_image.get(image_id)
        records.num_rows[IMAGES] += 1
        for text, group in groupby(image_regions, lambda region: region.phrase):
            boxes = list(group)
            size = (row["rows"], row["columns"]) if row is not None else (None, None)
            is_other = None not in size and {region.size for region in boxes if region.size} - {size}
            reason = "no_image" if row is None else "bad_row" if not text.strip() else "shape_mismatch" * bool(is_other)
            if reason:
                records.exclude(reason, image_id, record_kind=PHRASE, rows=len(boxes))
                continue
            corners = np.array([region.box or (np.nan,) * 4 for region in boxes])
            upright_boxes, upright_row = _to_upright(row, corners)
            shape = upright_row["rows"], upright_row["columns"]
            records.add_boxes(image_id, PHRASE, text.strip(), upright_boxes, shape)
        if row is None:
            records.num_excluded[IMAGES, "no_image"] += 1
        else:
            records.images.append(_to_upright(row)[1])
    return records


def read_imagenome(options: ReadOptions, images: str) -> SourceRecords:
    """Return the boxes of regions in the scene graphs. Train images of patients of the gold set are excluded.
    ``images``: image table of the source of format ``mimic``. Raises UserError if the folder has no graphs."""
    row_by_image = read_table(images).rows_by_key("image_id", named=True, include_key=True, unique=True)
    records = SourceRecords()
    split_by_image = _read_published_splits(options) if options.split == "published" else None
    avoid = options.folder / SPLIT_FOLDER / AVOID_TABLE
    listed_ids = _read_ids(options, avoid) if avoid.is_file() else ()
    for graph in imagenome.read_graphs(options.key, options.folder):
        row = row_by_image.get(graph.image_id)
        records.counts["table rows"] += len(graph.names)
        records.num_rows.update({IMAGES: 1, REGION: len(graph.names)})
        split = (split_by_image.get(graph.image_id) if split_by_image is not None else row["split"]) if row else None
        reason = "no_image" if row is None else "no_split" if split is None else ""
        reason = reason or ("listed" if split == "train" and graph.image_id in listed_ids else "")
        if reason:
            records.num_excluded[IMAGES, reason] += 1
            records.exclude(reason, graph.image_id, record_kind=REGION, rows=len(graph.names))
            continue
        boxes, image_row = _to_upright(row, graph.boxes)
        shape = image_row["rows"], image_row["columns"]
        for name, box in zip(graph.names, boxes, strict=True):
            if name.strip():
                records.add_boxes(graph.image_id, REGION, name, box[None], shape)
            else:
                records.exclude("unknown_label", graph.image_id, detail=UNNAMED_BOX, record_kind=REGION)
        records.images.append(image_row | {"split": split, "sex": graph.sex or row["sex"]})
    return records


def _read_published_splits(options: ReadOptions) -> dict[str, str]:
    split_by_image = {}
    for split, name in SPLIT_TABLES.items():
        path = options.folder / SPLIT_FOLDER / name
        if not path.is_file():
            problem = f"{options.folder} lacks {SPLIT_FOLDER}/{name}, which split: published needs"
            raise UserError(f"{options.key}: {problem}: add the file, or set radvlm.sources.split to mimic")
        split_by_image |= dict.fromkeys(_read_ids(options, path), split)
    return split_by_image


def _read_ids(options: ReadOptions, path: Path) -> set[str]:
    return set(read_columns(options.key, path, "Chest ImaGenome", ("dicom_id",), ids=("dicom_id",))["dicom_id"])


def _to_upright(row: Mapping, boxes: np.ndarray | None = None) -> tuple[np.ndarray, dict]:
    """Return (boxes (N, 4), row of the image), both for the upright image. Only DICOM files can need a turn."""
    stored = row["rows"], row["columns"]
    turn = read_turn(row["path"]) if row["path"].endswith(".dcm") and None not in stored else UPRIGHT
    rows, columns = turn.shape(stored)
    upright_boxes = boxes if boxes is None or turn == UPRIGHT else boxes_to_upright(boxes, turn, stored)
    return upright_boxes, {name: row[name] for name in row if name != "source"} | {"rows": rows, "columns": columns}
