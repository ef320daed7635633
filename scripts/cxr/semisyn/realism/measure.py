"""Measure the edited images of a shard by their pixels, and by the organs and boxes of other stages."""

from collections.abc import Mapping
from contextlib import ExitStack

import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.hdf5 import Shard, Shards
from cxr.base.jobs import log
from cxr.base.tables import read_table, read_tables, write_table
from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.affine import box_to_frame
from cxr.geometry.boxes import CORNERS, paired_iou
from cxr.metrics import appearance, edits
from cxr.semisyn.references import Reference, read_reference
from cxr.semisyn.shared import WARPED_FINDING

RESOURCE_FILES = ("columns/semisyn_realism.toml",)
JOBS = read_columns("semisyn_realism", "jobs")
BOXES = read_columns("semisyn_realism", "boxes")


def run_shard(
    *, plan: str, healthy: str, placed: list[str], frames: list[str], organs: list[str], source_boxes: list[str],
    edited: list[str], requested_boxes: list[str], edited_organs: list[str], edited_boxes: list[str], jobs: str,
    boxes: str, classes: dict[str, str],
) -> None:  # fmt: skip
    """Write the tables of the jobs (:data:`JOBS`) and of their boxes (:data:`BOXES`). The lists ``placed``,
    ``frames``, ``organs`` and ``source_boxes`` have a file for each shard of source images, the other lists one for
    each engine. ``classes``: {finding: detector's class}."""
    planned = read_table(plan).select("job_id", "finding", "image_id", "trial")
    patients = read_table(healthy).select("image_id", "subject_id")
    job_by_id = {row["job_id"]: row for row in planned.join(patients, on="image_id", how="left").iter_rows(named=True)}
    ratios = dict(read_tables(placed).drop_nulls("ctr_to").select("job_id", "ctr_to").iter_rows())
    before = best_confidence(read_tables(source_boxes), classes)
    rows, parts = [], []
    with ExitStack() as stack:
        sources, masks = (stack.enter_context(Shards(paths)) for paths in (frames, organs))
        for path, table, organ_path, detected in zip(edited, requested_boxes, edited_organs, edited_boxes, strict=True):
            shard, organs_after = (stack.enter_context(Shard(shard_path)) for shard_path in (path, organ_path))
            of_job = {job: part for (job,), part in read_table(table).group_by("job_id", maintain_order=True)}
            after = best_confidence(read_table(detected), classes)
            for job_id in shard.ids:
                job = job_by_id[job_id]
                image, name = job["image_id"], classes.get(job["finding"])
                lungs = masks.shard_of(image).masks(image)
                row, box_rows = measure_job(
                    sources.get("image", image), shard.get("image", job_id), lungs, of_job[job_id], job["finding"]
                )
                row |= job | {"ctr_requested": ratios.get(job_id), "ctr_measured": None}
                row["score"] = after.get((job_id, name), 0.0) if name else None
                row["source_score"] = before.get((image, name), 0.0) if name else None
                if job_id in ratios and job_id in organs_after:
                    after_masks = organs_after.masks(job_id)
                    ratio = edits.cardiothoracic_ratio(*(after_masks[organ] for organ in (HEART, *LUNGS)))
                    row["ctr_measured"] = float(ratio) if np.isfinite(ratio) else None
                rows.append(row)
                parts += [part | {key: job[key] for key in ("job_id", "finding", "subject_id")} for part in box_rows]
    write_table(jobs, pl.DataFrame(rows, schema=schema(JOBS)).sort("job_id"), JOBS)
    write_table(boxes, pl.DataFrame(parts, schema=schema(BOXES)).sort("job_id", "number"), BOXES)


def measure_job(
    source: np.ndarray, image: np.ndarray, organs: Mapping[str, np.ndarray], boxes: pl.DataFrame, finding: str
) -> tuple[dict, list[dict]]:
    """Return a job's row of :data:`JOBS` and its rows of :data:`BOXES`, without ids. ``source``, ``image``: frames
    before and after the edit; ``boxes``: the job's requested and visible boxes."""
    lungs, is_warped = np.stack([organs[name] for name in LUNGS]), finding == WARPED_FINDING
    requested, visible = (
        {number: (side, np.array(corners)) for number, side, *corners in
         boxes.filter(pl.col("kind") == kind).select("number", "side", *CORNERS).iter_rows()}
        for kind in ("conditioning", "visible")
    )  # fmt: skip
    corners = np.stack([box for _, box in requested.values()])
    difference = edits.difference_image(source, image)
    inside = edits.mask_from_boxes(corners, source.shape)
    row = {"change": edits.mean_change_inside(difference, inside)}
    if is_warped:
        return row, []
    overlaps = []
    for number, (side, box) in requested.items():  # both boxes are cut to the lung
        lung = organs[LUNGS[0] if side == "right" else LUNGS[1]]
        tight_boxes = [edits.tight_box_inside(each, lung) for each in (box, *visible.get(number, ())[1:])]
        pair = [tight_box[None] for tight_box in tight_boxes if tight_box is not None]
        overlaps.append(float(paired_iou(*pair)[0]) if len(pair) == 2 else 0.0)
    edges = [edits.edge_ratio(difference, box, lungs.any(axis=0)) for box in corners]
    row |= {
        "leak": edits.leaked_fraction(difference, inside),
        "iou_visible": float(np.mean(overlaps)),
        "edge_ratio": float(np.nanmean(edges)) if np.isfinite(edges).any() else None,
    }
    parts = []
    for at, number in enumerate(requested):
        neighbours = np.delete(corners, at, axis=0) if len(corners) > 1 else np.zeros((1, 4))
        values = appearance.lesion_features(image, corners[at], lungs, neighbours)
        if values is not None:
            parts.append({"number": number} | dict(zip(appearance.FEATURES, map(float, values), strict=True)))
    return row, parts


def best_confidence(detected: pl.DataFrame, classes: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Return {(image, class): highest confidence} of a table of detected boxes, for the classes in ``classes``."""
    best = detected.filter(pl.col("class_name").is_in(list(classes.values())))
    best = best.group_by("image_id", "class_name").agg(pl.col("confidence").max())
    return {(image, name): confidence for image, name, confidence in best.iter_rows()}


REFERENCE = read_columns("semisyn_realism", "reference")


def run_reference(
    *, annotations: str, images: str, frames: str, organs: str, output: str, reference: dict, findings: list[str]
) -> None:
    """Write the table :data:`REFERENCE` of experts' boxes on a shard's images. Measures are null for cardiomegaly,
    without lung masks, or if the box or its mirror image has too little lung that is free of other boxes. Raise
    UserError for a reference without boxes of ``findings``."""
    patients = dict(read_table(images).select("image_id", pl.col("subject_id").cast(pl.String)).iter_rows())
    boxes = read_reference(Reference(**reference), findings).boxes
    rows = []
    with Shard(frames) as pictures, Shard(organs) as masks:
        framed_boxes = boxes.filter(pl.col("image_id").is_in(pictures.ids))
        for (name,), part in framed_boxes.group_by("image_id", maintain_order=True):
            affine = pictures.get("to_original", name)
            corners = np.stack([box_to_frame(box, affine) for box in part.select(CORNERS).rows()])
            picture = pictures.get("image", name)
            image_masks = masks.masks(name) if name in masks else {}
            lungs = [image_masks[label] for label in LUNGS if label in image_masks and image_masks[label].any()]
            for number, finding in enumerate(part["finding"]):
                values = None
                if finding != WARPED_FINDING and len(lungs) == len(LUNGS):
                    neighbours = np.delete(corners, number, axis=0)
                    values = appearance.lesion_features(picture, corners[number], np.stack(lungs), neighbours)
                measures = [None] * len(appearance.FEATURES) if values is None else map(float, values)
                row = {"image_id": name, "finding": finding, "subject_id": patients[name], "number": number}
                rows.append(row | dict(zip(appearance.FEATURES, measures, strict=True)))
    table = pl.DataFrame(rows, schema=schema(REFERENCE)).sort("image_id", "number")
    log.info("realism: %d real boxes, %d without measures", len(table), table["contrast"].null_count())
    write_table(output, table, REFERENCE)
