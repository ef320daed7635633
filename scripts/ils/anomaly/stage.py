"""The anomaly stage: frames and organ masks in, edited images and anomaly maps out."""

from pathlib import Path

import numpy as np

from ils.anomaly.compose import BadMap, compose, edit_region
from ils.anomaly.engine import Options, load
from ils.core.ledger import Ledger
from ils.core.parallel import map_rows
from ils.core.run import progress
from ils.core.store import Shard, ShardWriter

__all__ = ["Options", "run_shard"]

SIZE = 512
UNITS = {"edited": "grey levels", "anomaly": "grey levels"}


def run_shard(
    *,
    frames: str | Path,
    organs: str | Path,
    output: str | Path,
    excluded: str | Path,
    options: Options,
    attrs: dict,
    threads: int,
) -> None:
    """Take the lesions out of every image of a shard that has organ masks.

    Writes ``output`` (HDF5: ``edited`` and ``anomaly`` uint8 (512, 512) for each accepted image; outside lungs and
    heart ``edited`` equals the frame, and ``anomaly`` = max(frame - edited, 0)) and the ledger ``excluded`` (reasons
    ``bad_map``, ``engine_failure``). Raises UserError for an unknown engine.
    """
    engine = load(options.engine, options)
    ledger = Ledger("anomaly")

    def work(image: np.ndarray, masks: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray] | BadMap:
        try:
            return compose(image, np.asarray(engine.edit(image.copy(), masks)), edit_region(masks))
        except BadMap as fault:
            return fault

    empty = dict.fromkeys(UNITS, ((SIZE, SIZE), np.uint8))
    with (
        Shard(frames) as frame_shard,
        Shard(organs) as shard,
        ShardWriter(output, attrs=attrs, units=UNITS, empty=empty) as writer,
    ):

        def read(name: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
            return frame_shard.get("image", name), shard.masks(name)

        rows = map_rows(sorted(shard.ids), read, work, threads)
        for image_id, _, result in progress(rows, len(shard), "anomaly"):
            if isinstance(result, str):
                ledger.exclude(image_id, "", "engine_failure", result)
            elif isinstance(result, BadMap):
                ledger.exclude(image_id, "", "bad_map", str(result))
            else:
                ledger.accept(image_id)
                edited, anomaly = result
                writer.append(image_id, edited=edited, anomaly=anomaly)
        ledger.finish(excluded, shard.ids)
