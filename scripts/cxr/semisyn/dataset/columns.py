"""Columns of the dataset's tables."""

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.geometry.boxes import CORNERS

SYNTHETIC = "synthetic finding"
"""What every row and every picture says."""
_EDGES = zip(CORNERS, ("Left", "Top", "Right", "Bottom"), strict=True)

IMAGES: Columns = {
    "job_id": Column(pl.String, "Job, and name of the edited image."),
    "image_id": Column(pl.String, "Healthy image that it was made from."),
    "study_id": Column(pl.String, "Its study."),
    "subject_id": Column(pl.String, "Its patient."),
    "split": Column(pl.String, "Split of the patient: train, validate or test."),
    "subset": Column(pl.String, "Folder of the exports: train, val or test."),
    "finding": Column(pl.String, "Finding that was put in."),
    "rank": Column(pl.Int64, "Place among the edited images of its finding, from 0: a size takes the first ones."),
    "asked": Column(pl.Int64, "Images asked of its finding, of which the parts fifth and half are taken."),
    "prompt": Column(pl.String, "What a report would say of it."),
    "config": Column(pl.String, "Configuration that edited it."),
    "engine": Column(pl.String, "Its engine."),
    "rows": Column(pl.Int64, "Height of the original image.", "pixels"),
    "columns": Column(pl.Int64, "Its width.", "pixels"),
    "to_original": Column(pl.List(pl.Float64), "Affine from frame to original pixels, row by row, six numbers."),
    "says": Column(pl.String, "Always `synthetic finding`."),
}
BOXES: Columns = {
    "job_id": Column(pl.String, "Job."),
    "finding": Column(pl.String, "Finding."),
    "number": Column(pl.Int64, "Number of the box within the job, from 0."),
    "kind": Column(pl.String, "conditioning: as it was asked; visible: what can be seen of it."),
    "target": Column(pl.String, "Readers whose convention the box follows: source, vindr or mimic."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    "zone": Column(pl.String, "Zone of the lung that the prompt names; empty without one."),
    **{name: Column(pl.Float64, f"{what} edge, half-open.", "frame pixels") for name, what in _EDGES},
    "change_inside": Column(pl.Float64, "Mean size of the change inside the job's boxes.", "grey levels"),
    "change_outside_max": Column(pl.Float64, "Largest change outside of them.", "grey levels"),
    "leak": Column(pl.Float64, "Share of the squared change that lies outside of them."),
    "area": Column(pl.Int64, "Pixels inside of them that changed visibly.", "pixels"),
    "config": Column(pl.String, "Configuration that made the image."),
    "drawn": Column(pl.String, "What the engine drew for the job, JSON."),
    "says": Column(pl.String, "Always `synthetic finding`."),
}
JOBS: Columns = {
    "job_id": Column(pl.String, "Job."),
    "finding": Column(pl.String, "Finding."),
    "planned": Column(pl.Boolean, "Always true."),
    "placed": Column(pl.Boolean, "Whether its boxes found room."),
    "edited": Column(pl.Boolean, "Whether its image was edited."),
    "exported": Column(pl.Boolean, "Whether the dataset holds it."),
    "stage": Column(pl.String, "Stage at which it stopped; empty for an exported job."),
    "reason": Column(pl.String, "Code of the reason ([reasons.md](reasons.md)), or `spare`: edited, but not needed."),
}
CONSERVATION: Columns = {
    "finding": Column(pl.String, "Finding, or `all`."),
    "asked": Column(pl.Int64, "Images asked for."),
    "planned": Column(pl.Int64, "Jobs planned, those to spare among them."),
    "not_placed": Column(pl.Int64, "Jobs excluded by placement."),
    "placed": Column(pl.Int64, "Jobs with boxes."),
    "not_edited": Column(pl.Int64, "Jobs excluded by editing."),
    "edited": Column(pl.Int64, "Edited images."),
    "spare": Column(pl.Int64, "Edited images that no size needs."),
    "exported": Column(pl.Int64, "Images of the dataset."),
    "balanced": Column(pl.String, "yes: each job is in exactly one of not_placed, not_edited, spare, exported."),
}
COUNTS: Columns = {
    "finding": Column(pl.String, "Finding."),
    "side": Column(pl.String, "right, left, both, or empty for the heart."),
    "zone": Column(pl.String, "Zone that the prompt names; empty without one."),
    "images": Column(pl.Int64, "Images of the dataset."),
}
