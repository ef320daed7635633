"""Predict boxes with a trained detector on the images of a reference, in original pixels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import torch

from cxr.base.columns import schema
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.base.jobs import log, progress
from cxr.base.tables import write_table
from cxr.detection.grid import CONFIDENCE_DIGITS, PIXEL_DIGITS
from cxr.geometry.affine import boxes_to_original
from cxr.semisyn.detectors.engine import load_engine
from cxr.semisyn.references import PREDICTIONS, Reference, read_reference


@dataclass(frozen=True)
class PredictionOptions:
    """Engine, its own section, the findings (its classes), and the settings of the reference."""

    engine: str
    own: dict
    findings: Sequence[str]
    reference: dict


def run(
    *,
    model: str,
    annotations: str,
    frames: Sequence[str],
    output: str,
    options: PredictionOptions,
    compute: dict,
    roles: str = "",
    **engine_files: str,
) -> None:
    """Write a detector's boxes on all images of a reference that have a frame.

    ``frames``: shards of frames; ``annotations``, ``roles``: unused, they make Snakemake wait for the reference's file
    and the check of roles. Raises UserError if none of the images has a frame.
    """
    torch.set_num_threads(1)
    reference = Reference(**options.reference)
    images = read_reference(reference, options.findings).image_ids
    setup = Setup.for_engine(options.own, engine_files, compute, options.engine)
    find = load_engine(options.engine, options, setup).load(Path(model))
    rows = []
    with Shards(frames) as shards:
        framed_ids = sorted(image for image in images if image in shards)
        if not framed_ids:
            raise UserError(
                f"{reference.key}: none of its {len(images)} images has a frame: they are not the cohort's; name their "
                f"folder in semisyn.references.{reference.name}.images"
            )
        if len(framed_ids) < len(images):
            log.warning(
                "semisyn.references.%s: %d of its %d images have no frame, and count as if nothing were found on them",
                reference.name, len(images) - len(framed_ids), len(images),
            )  # fmt: skip
        for image in progress(framed_ids, len(framed_ids), "predictions"):
            shard = shards.shard_of(image)
            detections = find(shard.get("image", image))
            corners = to_original_pixels(
                detections.boxes, shard.get("to_original", image), shard.get("original_shape", image)
            )
            for place, confidence, box in zip(detections.classes, detections.confidence, corners, strict=True):
                if box[0] < box[2] and box[1] < box[3]:
                    rows.append((image, options.findings[place], round(float(confidence), CONFIDENCE_DIGITS), *box))
    write_table(output, pl.DataFrame(rows, schema=schema(PREDICTIONS), orient="row"), PREDICTIONS)


def to_original_pixels(boxes: np.ndarray, affine: np.ndarray, shape: Sequence[int]) -> list[list[float]]:
    """Return boxes (N, 4) of a frame in original pixels, clipped to an image of ``shape`` (rows, columns)."""
    corners = boxes_to_original(np.asarray(boxes, np.float64), affine)
    return np.clip(corners, 0, np.tile(shape[::-1], 2)).round(PIXEL_DIGITS).tolist()
