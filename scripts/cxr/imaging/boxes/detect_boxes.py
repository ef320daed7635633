"""The boxes stage: detects boxes on frames and writes a table. The masks stage applies thresholds later."""

from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import Column, edge_columns, schema
from cxr.base.engines import Setup
from cxr.base.hdf5 import Shard
from cxr.base.jobs import log
from cxr.base.ledger import Ledger
from cxr.base.tables import write_table
from cxr.base.workers import process_rows
from cxr.imaging.boxes.engine import load_engine
from cxr.imaging.boxes.settings import BoxesSettings

COLUMNS = {
    "image_id": Column(pl.String, "Image."),
    **edge_columns("", "frame pixels"),
    "confidence": Column(pl.Float64, "Confidence of the detector, 0 to 1."),
    "class_name": Column(pl.String, "Class, by its VinBigData name."),
    "is_used": Column(pl.Boolean, "Whether the box is used: its class is not in `boxes.excluded_classes`."),
}
SCHEMA = schema(COLUMNS)


def run_shard(
    *,
    frames: str | Path,
    output: str | Path,
    excluded: str | Path,
    options: BoxesSettings,
    attrs: dict,
    threads: int,
    compute: dict | None = None,
    **files: str,
) -> None:
    """Detect boxes on every frame of a shard. Writes ``output`` (:data:`COLUMNS`) and the table ``excluded``.

    An image without boxes has no row. An image on which the engine failed is excluded. ``files``: the engine's input
    files; ``compute``: settings ``compute``; ``attrs``: unused. Raises UserError for an unknown engine or class.
    """
    engine = load_engine(options, Setup.of_job(files, compute, options.engine))
    ledger, rows = Ledger("boxes"), []

    with Shard(frames) as shard:

        def read(name: str) -> tuple[np.ndarray, str, np.ndarray]:
            return shard.get("image", name), name, shard.get("to_original", name)

        batch = getattr(engine, "batch", None)

        def work(rows: list[tuple]):
            if batch is None:
                return [(engine.detect(*row), None) for row in rows]
            return [(detections, None) for detections in engine.detect_batch([image for image, _, _ in rows])]

        if engine.image_ids is not None and shard.ids and engine.image_ids.isdisjoint(shard.ids):
            counts = len(shard.ids), len(engine.image_ids)
            log.warning(
                "boxes: none of the %d images of this shard is among the %d images in boxes.table: "
                "its image_id must match the image_id of the cohort", *counts,
            )  # fmt: skip
        for image_id, detections in process_rows(ledger, shard.ids, read, work, batch, threads, compute):
            for box, confidence, name in zip(*detections, strict=True):
                is_used = name not in options.excluded_classes
                rows.append((image_id, *map(float, box), float(confidence), name, is_used))
        ledger.finish(excluded, shard.ids)
    boxes = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    order = ["image_id", "confidence", "x1", "y1", "x2", "y2", "class_name"]
    write_table(output, boxes.sort(order, descending=[name == "confidence" for name in order]), COLUMNS)
