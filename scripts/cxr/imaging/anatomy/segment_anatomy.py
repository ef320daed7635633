"""The anatomy stage: segments the heart and the 15 zone labels (lungs, lung zones and lobes) on edited images."""

import math
from pathlib import Path
from typing import Protocol

import numpy as np

from cxr.base.edited_images import read_edited_image
from cxr.base.engines import Setup, engine_module
from cxr.base.hdf5 import FRAME_SIZE, Shard, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.vocabulary import ANATOMY_LABELS, HEART, LUNGS
from cxr.base.workers import process_rows
from cxr.imaging.anatomy.settings import AnatomySettings

MIN_LABELS = 14  # minimum number of non-empty masks, of 16 (D.1 checks this number, but gives no limit)
MAX_DISAGREEMENT = 0.05  # maximum distance between edges of both mask sets, frame widths (D.2 gives no limit)


class AnatomyEngine(Protocol):
    """An engine that segments the heart and the 15 zone labels. Its module has a function ``load(options, setup)``."""

    def segment(self, image: np.ndarray) -> np.ndarray:
        """Segment an edited frame; return masks, bool (16, 512, 512), in the order of ``ANATOMY_LABELS``.

        The mask of a structure that is not in the image is empty. Several threads call this method at once.

        An engine with a large net instead has an attribute ``batch``, the batch size, and a method
        ``segment_batch(images)``, which returns the masks of a list of frames and is called from one thread.
        """


def load_engine(name: str, options: AnatomySettings, setup: Setup | None = None) -> AnatomyEngine:
    """Load the engine ``cxr.imaging.anatomy.<name>``. Raises UserError for an unknown name."""
    return engine_module("cxr.imaging.anatomy", name).load(options, setup or Setup())


def outer_edges(masks: dict[str, np.ndarray]) -> dict[str, float | None]:
    """Return {edge: its column or row} for the outer edges of both lungs and the lower edge of the heart.

    The right lung is on the image's left, so its outer edge is its smallest column. The edge of an empty mask is None.
    """
    right_columns, left_columns = (np.flatnonzero(masks[name].any(axis=0)) for name in LUNGS)
    heart_rows = np.flatnonzero(masks[HEART].any(axis=1))
    edges = {"outer edge of the right lung": right_columns[:1], "outer edge of the left lung": left_columns[-1:]}
    edges |= {"lower edge of the heart": heart_rows[-1:]}
    return {name: float(places[0]) if places.size else None for name, places in edges.items()}


def disagreement(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> tuple[float, str]:
    """Return (distance, edge) for the edge of :func:`outer_edges` that differs most between two sets of masks.

    The distance, in frame widths, is infinite if only one set has the edge. An edge that both sets lack is ignored.
    """
    width = first[HEART].shape[1]
    distances = [(0.0, "")]
    second_edges = outer_edges(second)
    for name, value in outer_edges(first).items():
        if (value is None) != (second_edges[name] is None):
            distances.append((math.inf, name))
        elif value is not None:
            distances.append((abs(value - second_edges[name]) / width, name))
    return max(distances, key=lambda pair: pair[0])


def find_fault(anatomy: np.ndarray, organs: dict[str, np.ndarray], options: AnatomySettings) -> tuple[str, str] | None:
    """Return (reason code, detail) if the image must be excluded because of its masks, otherwise None.

    ``anatomy``: masks of the edited image, bool (16, H, W); ``organs``: masks of the original image, {label: bool (H,
    W)}. The checks are from the paper: D.1 (number of extracted masks) and D.2 (agreement of the two models).
    """
    num_nonempty = int(anatomy.any(axis=(1, 2)).sum())
    if num_nonempty < MIN_LABELS:
        return "missing_anatomy", f"{num_nonempty} of {len(ANATOMY_LABELS)} masks are not empty"
    distance, edge = disagreement(organs, dict(zip(ANATOMY_LABELS, anatomy, strict=True)))
    if distance > MAX_DISAGREEMENT:
        return "organ_disagreement", f"the {edge} differs between organs and anatomy by {distance:.3f} frame widths"
    return None


def run_shard(
    *,
    frames: str | Path,
    anomaly: str | Path,
    organs: str | Path,
    output: str | Path,
    excluded: str | Path,
    options: AnatomySettings,
    attrs: dict,
    threads: int,
    compute: dict | None = None,
    **files: str,
) -> None:
    """Segment every edited image of a shard and keep those whose anatomy is complete and agrees with the organs.

    Writes ``output`` (HDF5: ``mask`` of each accepted image, bit-packed (16, 512, 512)) and the table ``excluded``.
    ``files``: the engine's input files; ``attrs``: provenance, attributes of ``output``; ``compute``: the settings
    section ``compute``. Raises UserError for an unknown engine.
    """
    engine = load_engine(options.engine, options, Setup.of_job(files, compute, options.engine))
    ledger = Ledger("anatomy")

    batch = getattr(engine, "batch", None)

    def work(rows: list[tuple[np.ndarray, dict[str, np.ndarray]]]):
        images, organ_sets = zip(*rows, strict=True)
        masks = map(engine.segment, images) if batch is None else engine.segment_batch(list(images))
        return [(mask, find_fault(mask, organ_set, options)) for mask, organ_set in zip(masks, organ_sets, strict=True)]

    empty = {"mask": ((len(ANATOMY_LABELS), FRAME_SIZE, FRAME_SIZE), bool)}
    with (
        Shard(frames) as frame_shard,
        Shard(anomaly) as shard,
        Shard(organs) as organ_shard,
        ShardWriter(output, attrs=attrs, labels=ANATOMY_LABELS, empty=empty) as writer,
    ):

        def read(name: str) -> tuple:
            return read_edited_image(shard, frame_shard, name), organ_shard.masks(name)

        for image_id, masks in process_rows(ledger, shard.ids, read, work, batch, threads, compute):
            writer.append(image_id, mask=masks)
        ledger.finish(excluded, shard.ids)
