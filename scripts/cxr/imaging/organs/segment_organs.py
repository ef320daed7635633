"""The organs stage: segments organs on frames and excludes images that do not show a complete chest."""

from pathlib import Path

import numpy as np

from cxr.base.engines import Setup
from cxr.base.hdf5 import FRAME_SIZE, Shard, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.workers import Fault, process_rows
from cxr.imaging.organs.engine import NoOrgans, load_engine
from cxr.imaging.organs.quality import find_fault, find_posture_fault
from cxr.imaging.organs.settings import OrgansSettings


def run_shard(
    *,
    frames: str | Path,
    output: str | Path,
    excluded: str | Path,
    options: OrgansSettings,
    attrs: dict,
    threads: int,
    compute: dict | None = None,
    **files: str,
) -> None:
    """Segment every frame of a shard and keep the images that pass the checks in :mod:`cxr.imaging.organs.quality`.

    Writes ``output`` (HDF5: ``mask`` of each accepted image, bit-packed (K, 512, 512)) and the table ``excluded``.
    ``files``: the engine's input files; ``attrs``: provenance, attributes of ``output``; ``compute``: the settings
    section ``compute``. Raises UserError for an unknown engine.
    """
    engine = load_engine(options.engine, options, Setup.of_job(files, compute, options.engine))
    ledger = Ledger("organs")

    def check(row: tuple, masks: np.ndarray | NoOrgans) -> tuple[np.ndarray | None, Fault | None]:
        image, _, to_original, shape = row
        if isinstance(masks, NoOrgans):
            return None, ("no_lungs", str(masks))
        mask_by_label = dict(zip(engine.labels, masks, strict=True))
        return masks, find_fault(image, mask_by_label, to_original, shape)

    batch = getattr(engine, "batch", None)

    def segment(row: tuple) -> np.ndarray | NoOrgans:
        try:
            return engine.segment(*row)
        except NoOrgans as reason:
            return reason

    def work(rows: list[tuple]):
        faults = [find_posture_fault(image, to_original, shape, options) for image, _, to_original, shape in rows]
        upright_rows = [row for row, fault in zip(rows, faults, strict=True) if not fault]
        masks = iter(engine.segment_batch(upright_rows) if batch and upright_rows else map(segment, upright_rows))
        return [(None, fault) if fault else check(row, next(masks)) for row, fault in zip(rows, faults, strict=True)]

    empty = {"mask": ((len(engine.labels), FRAME_SIZE, FRAME_SIZE), bool)}
    with Shard(frames) as shard, ShardWriter(output, attrs=attrs, labels=engine.labels, empty=empty) as writer:

        def read(name: str) -> tuple:
            shape = tuple(map(int, shard.get("original_shape", name)))
            return shard.get("image", name), name, shard.get("to_original", name), shape

        if hasattr(engine, "prepare"):
            engine.prepare(shard.ids)
        for image_id, masks in process_rows(ledger, shard.ids, read, work, batch, threads, compute):
            writer.append(image_id, mask=masks)
        ledger.finish(excluded, shard.ids)
