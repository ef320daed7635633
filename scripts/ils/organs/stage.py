"""The organs stage: frames in, masks of the usable chests out."""

from pathlib import Path

import numpy as np

from ils.core.ledger import Ledger
from ils.core.parallel import sift
from ils.core.store import FRAME_SIZE, Shard, ShardWriter
from ils.organs.engine import Options, load
from ils.organs.quality import fault

__all__ = ["Options", "run_shard"]


def run_shard(
    *, frames: str | Path, output: str | Path, excluded: str | Path, options: Options, attrs: dict, threads: int
) -> None:
    """Segment every frame of a shard and keep the pictures that pass the checks of :mod:`ils.organs.quality`.

    Writes ``output`` (HDF5: ``mask`` packed bool (K, 512, 512) for each accepted image) and the ledger ``excluded``.
    Raises UserError for an unknown engine.
    """
    engine = load(options.engine, options)
    ledger = Ledger("organs")

    def work(image: np.ndarray, to_original: np.ndarray, original_shape: np.ndarray):
        masks = engine.segment(image)
        named = dict(zip(engine.labels, masks, strict=True))
        return masks, fault(image, named, to_original, tuple(original_shape), options)

    empty = {"mask": ((len(engine.labels), FRAME_SIZE, FRAME_SIZE), bool)}
    with Shard(frames) as shard, ShardWriter(output, attrs=attrs, labels=engine.labels, empty=empty) as writer:

        def read(name: str) -> tuple:
            return tuple(shard.get(field, name) for field in ("image", "to_original", "original_shape"))

        for image_id, masks in sift(ledger, shard.ids, read, work, threads):
            writer.append(image_id, mask=masks)
        ledger.finish(excluded, shard.ids)
