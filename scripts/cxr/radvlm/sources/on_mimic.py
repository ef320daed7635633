"""The sources ms_cxr and imagenome: boxes on images of a mimic source, joined by id, with that source's split."""

from collections.abc import Iterable, Mapping

import numpy as np

from cxr.annotations import imagenome
from cxr.annotations.label_tables import read_columns
from cxr.annotations.ms_cxr import read as read_table_of_ms_cxr
from cxr.annotations.regions import Annotation
from cxr.base.errors import UserError
from cxr.base.tables import read_table
from cxr.geometry.affine import boxes_to_upright
from cxr.geometry.turns import UPRIGHT, Turn
from cxr.imaging.cohort.header import read_turn
from cxr.radvlm.sources.facts import IMAGES, PHRASE, REGION, UNNAMED_BOX, ReadOptions, SourceRecords, add_boxes
from cxr.radvlm.sources.mimic import ID_COLUMNS, read_published_splits

AVOID_TABLE = "images_to_avoid.csv"


def read_ms_cxr(options: ReadOptions, images: str) -> SourceRecords:
    """Read the phrases with their boxes. ``images``: image table of the mimic source.

    Boxes of one image with the same text form one phrase. Raises UserError for a folder without the table.
    """
    path = options.folder
    if path.is_dir():
        tables = [table for ending in ("csv", "csv.gz", "json") for table in sorted(path.glob(f"MS_CXR*.{ending}"))]
        if not tables:
            raise UserError(f"{options.key}: {path} lacks MS_CXR_Local_Alignment_*.csv: give the folder of MS-CXR")
        path = tables[0]
    regions = read_table_of_ms_cxr(options.key, path).regions
    records, row_by_image = SourceRecords(), _read_images(images)
    records.counts["table rows"] = records.num_rows[PHRASE] = len(regions)
    for image_id, image_regions in _group_by(regions, lambda region: region.image.removesuffix(".dcm")):
        row = row_by_image.get(image_id)
        records.num_rows[IMAGES] += 1
        for text, group in _group_by(image_regions, lambda region: region.phrase):
            reason = "no_image" if row is None else "bad_row" if not text.strip() else _shape_mismatch(row, group)
            if reason:
                records.exclude(reason, image_id, record_kind=PHRASE, rows=len(group))
                continue
            boxes = np.array([region.box or (np.nan,) * 4 for region in group])
            add_boxes(records, image_id, PHRASE, text.strip(), *_to_upright(row, boxes))
        if row is None:
            records.num_excluded[IMAGES, "no_image"] += 1
        else:
            records.images.append(_upright_image_row(row))
    records.num_kept.update({IMAGES: len(records.images), PHRASE: len(records.facts)})
    return records


def _shape_mismatch(row: Mapping, group: Iterable[Annotation]) -> str:
    """Return a reason if a box was drawn on an image of another size, else ""."""
    sizes = {region.size for region in group if region.size}
    has_size = row["rows"] is not None and row["columns"] is not None
    return "shape_mismatch" if has_size and sizes - {(row["rows"], row["columns"])} else ""


def read_imagenome(options: ReadOptions, images: str) -> SourceRecords:
    """Read the regions of the scene graphs. ``images``: image table of the mimic source.

    Images of the gold set's patients are excluded from train (``listed``). Raises UserError if there are no graphs.
    """
    records, row_by_image = SourceRecords(), _read_images(images)
    split_by_image = read_published_splits(options.folder, options.key) if options.split == "published" else None
    avoid = options.folder / "silver_dataset" / "splits" / AVOID_TABLE
    listed = set()
    if avoid.is_file():
        listed = set(read_columns(options.key, avoid, "Chest ImaGenome", ID_COLUMNS, ids=ID_COLUMNS)["dicom_id"])
    for graph in imagenome.read_graphs(options.key, options.folder):
        row = row_by_image.get(graph.image_id)
        records.counts["table rows"] += len(graph.names)
        records.num_rows.update({IMAGES: 1, REGION: len(graph.names)})
        split = (split_by_image.get(graph.image_id) if split_by_image is not None else row["split"]) if row else None
        reason = "no_image" if row is None else "no_split" if split is None else ""
        reason = reason or ("listed" if graph.image_id in listed and split == "train" else "")
        if reason:
            records.num_excluded[IMAGES, reason] += 1
            records.exclude(reason, graph.image_id, record_kind=REGION, rows=len(graph.names))
            continue
        boxes, shape = _to_upright(row, graph.boxes)
        for name, box in zip(graph.names, boxes, strict=True):
            if not name.strip():
                records.exclude("unknown_label", graph.image_id, detail=UNNAMED_BOX, record_kind=REGION)
                continue
            add_boxes(records, graph.image_id, REGION, name, box[None], shape)
        records.images.append(_upright_image_row(row) | {"split": split, "sex": graph.sex or row["sex"]})
    records.num_kept.update({IMAGES: len(records.images), REGION: len(records.facts)})
    return records


def _read_turn(row: Mapping) -> Turn:
    """Return the turn that makes an image upright; known only for DICOM files of known size."""
    tells = row["path"].endswith(".dcm") and row["rows"] is not None and row["columns"] is not None
    return read_turn(row["path"]) if tells else UPRIGHT


def _to_upright(row: Mapping, boxes: np.ndarray) -> tuple[np.ndarray, tuple[int | None, int | None]]:
    """Return boxes (N, 4), drawn on the stored image, in pixels of the upright image, and its size."""
    turn, stored = _read_turn(row), (row["rows"], row["columns"])
    return (boxes if turn == UPRIGHT else boxes_to_upright(boxes, turn, stored)), turn.shape(stored)


def _upright_image_row(row: Mapping) -> dict:
    """Return an image row with the size of the upright image."""
    rows, columns = _read_turn(row).shape((row["rows"], row["columns"]))
    return {name: row[name] for name in row if name != "source"} | {"rows": rows, "columns": columns}


def _read_images(images: str) -> dict[str, dict]:
    return {row["image_id"]: row for row in read_table(images).iter_rows(named=True)}


def _group_by(rows: Iterable, key) -> list[tuple[str, list]]:
    """Return (key, rows) sorted by key; rows keep their order."""
    rows_by_key: dict[str, list] = {}
    for row in rows:
        rows_by_key.setdefault(key(row), []).append(row)
    return sorted(rows_by_key.items())
