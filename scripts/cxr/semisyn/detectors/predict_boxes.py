"""Predict boxes with a trained detector on the images of a reference, in original pixels."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.base.jobs import log, progress
from cxr.base.tables import write_rows
from cxr.detection.grid import CONFIDENCE_DIGITS, PIXEL_DIGITS
from cxr.geometry.affine import boxes_to_original
from cxr.semisyn.detectors.engine import load_engine
from cxr.semisyn.references import PREDICTIONS, Reference, read_reference


def run(
    *, model: str, annotations: str, frames: Sequence[str], output: str, engine: str, engine_settings: dict,
    findings: Sequence[str], reference: dict, compute: dict, roles: str = "", **engine_files: str,
) -> None:  # fmt: skip
    """Write a detector's boxes on all images of a reference that have a frame. Raises UserError if none has one."""
    torch.set_num_threads(1)
    source = Reference(**reference)
    images = read_reference(source, findings).image_ids
    find = load_engine(engine, Setup.for_engine(engine_settings, engine_files, compute, engine)).load(Path(model))
    rows = []
    with Shards(frames) as shards:
        framed_ids = sorted(image for image in images if image in shards)
        if not framed_ids:
            raise UserError(
                f"{source.key}: none of its {len(images)} images has a frame: they are not the cohort's; name their "
                f"folder in semisyn.references.{source.name}.images"
            )
        if len(framed_ids) < len(images):
            log.warning(
                "semisyn.references.%s: %d of its %d images have no frame, and count as if nothing were found on them",
                source.name, len(images) - len(framed_ids), len(images),
            )  # fmt: skip
        for image in progress(framed_ids, len(framed_ids), "predictions"):
            shard = shards.shard_of(image)
            detections = find(shard.get("image", image))
            rows_columns = shard.get("original_shape", image)
            corners = boxes_to_original(np.asarray(detections.boxes, np.float64), shard.get("to_original", image))
            corners = np.clip(corners, 0, np.tile(rows_columns[::-1], 2)).round(PIXEL_DIGITS).tolist()
            for place, confidence, box in zip(detections.classes, detections.confidence, corners, strict=True):
                if box[0] < box[2] and box[1] < box[3]:
                    rows.append((image, findings[place], round(float(confidence), CONFIDENCE_DIGITS), *box))
    write_rows(output, rows, PREDICTIONS)
