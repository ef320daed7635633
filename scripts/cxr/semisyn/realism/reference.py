"""Measure real boxes of the findings on the cohort's images, for comparison with edited ones."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.hdf5 import Shard
from cxr.base.jobs import log
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import LUNGS
from cxr.geometry.affine import boxes_to_frame
from cxr.geometry.boxes import CORNERS
from cxr.metrics import appearance
from cxr.semisyn.realism.measure import BOXES
from cxr.semisyn.references import Reference, read_reference
from cxr.semisyn.shared import WARPED_FINDING

REFERENCE = {
    "image_id": Column(pl.String, "Image of the cohort with a box of the reference."),
    "finding": Column(pl.String, "Finding."),
    "subject_id": Column(pl.String, "Its patient."),
    "number": Column(pl.Int64, "Number of the box among those of the image."),
    **{
        name: replace(BOXES[name], meaning=f"{BOXES[name].meaning[:-1]}; null where it has no sense.")
        for name in appearance.FEATURES
    },
}


@dataclass(frozen=True)
class RealOptions:
    """reference: {name, format, path, image_id, role, classes}; findings: those that are edited."""

    reference: dict
    findings: list[str]


def run_shard(*, reference: str, images: str, frames: str, organs: str, output: str, options: RealOptions) -> None:
    """Write :data:`REFERENCE` of the shard's images. ``images``: all images of the cohort.

    A box has no measures if its image has no organs, if the lung under it or at the mirrored place is too small, or if
    it is a heart's. Raises UserError for a reference that cannot be read.
    """
    patients = dict(read_table(images).select("image_id", pl.col("subject_id").cast(pl.String)).iter_rows())
    boxes = read_reference(Reference(**options.reference), options.findings).boxes
    rows = []
    with Shard(frames) as pictures, Shard(organs) as masks:
        for (name,), part in boxes.filter(pl.col("image_id").is_in(pictures.ids)).group_by(
            "image_id", maintain_order=True
        ):
            affine = pictures.get("to_original", name)
            corners = np.stack([_box_on_frame(box, affine) for box in part.select(CORNERS).rows()])
            picture = pictures.get("image", name)
            lungs = masks.masks(name) if name in masks else {}
            for number, finding in enumerate(part["finding"]):
                row = {"image_id": name, "finding": finding, "subject_id": patients[name], "number": number}
                rows.append(row | _measure_box(picture, corners, number, finding, lungs))
    table = pl.DataFrame(rows, schema=schema(REFERENCE)).sort("image_id", "number")
    log.info("realism: %d real boxes, %d without measures", len(table), table["contrast"].null_count())
    write_table(output, table, REFERENCE)


def _box_on_frame(box: tuple[float, ...], affine: np.ndarray) -> np.ndarray:
    """Return a box (4,) in original pixels as one in frame pixels."""
    return boxes_to_frame(np.array(box, np.float64), affine).ravel()


def _measure_box(picture: np.ndarray, boxes: np.ndarray, number: int, finding: str, organs: dict) -> dict:
    lungs = [organs.get(name) for name in LUNGS]
    usable = finding != WARPED_FINDING and all(lung is not None and lung.any() for lung in lungs)
    neighbours = np.delete(boxes, number, axis=0)
    values = appearance.lesion_features(picture, boxes[number], np.stack(lungs), neighbours) if usable else None
    measures = [None] * len(appearance.FEATURES) if values is None else map(float, values)
    return dict(zip(appearance.FEATURES, measures, strict=True))
