"""The organs stage: segments frames and keeps the usable chests."""

from pathlib import Path

import numpy as np

from cxr.base.engines import Setup
from cxr.base.faults import Tolerance
from cxr.base.hdf5 import FRAME_SIZE, Shard, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.workers import sift
from cxr.imaging.organs.engine import NoOrgans, OrgansOptions, load_engine
from cxr.imaging.organs.quality import fault, posture

__all__ = ["OrgansOptions", "run_shard"]


def run_shard(
    *,
    frames: str | Path,
    output: str | Path,
    excluded: str | Path,
    options: OrgansOptions,
    attrs: dict,
    threads: int,
    compute: dict | None = None,
    **files: str,
) -> None:
    """Segment every frame of a shard and keep the images that pass the checks in :mod:`cxr.imaging.organs.quality`.

    Writes ``output`` (HDF5: ``mask`` packed bool (K, 512, 512) for each accepted image) and the ledger ``excluded``.
    ``files``: the engine's other input files; ``compute``: how its net is run. Raises UserError for an unknown engine.
    """
    engine = load_engine(options.engine, options, Setup.of(options.own, files, compute, options.engine))
    ledger = Ledger("organs")

    def work(image: np.ndarray, name: str, to_original: np.ndarray, original_shape: np.ndarray):
        shape = tuple(map(int, original_shape))
        if wrong := posture(image, to_original, shape, options):
            return None, wrong
        try:
            masks = engine.segment(image, name, to_original, shape)
        except NoOrgans as reason:
            return None, ("no_lungs", str(reason))
        named = dict(zip(engine.labels, masks, strict=True))
        return masks, fault(image, named, to_original, shape, options)

    empty = {"mask": ((len(engine.labels), FRAME_SIZE, FRAME_SIZE), bool)}
    with Shard(frames) as shard, ShardWriter(output, attrs=attrs, labels=engine.labels, empty=empty) as writer:

        def read(name: str) -> tuple:
            return shard.get("image", name), name, shard.get("to_original", name), shard.get("original_shape", name)

        if hasattr(engine, "prepare"):
            engine.prepare(shard.ids)
        for image_id, masks in sift(ledger, shard.ids, read, work, threads, Tolerance.of(compute)):
            writer.append(image_id, mask=masks)
        ledger.finish(excluded, shard.ids)
