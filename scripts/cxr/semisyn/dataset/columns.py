"""Columns of the dataset's tables."""

import polars as pl

from cxr.base.columns import Column, Columns
from cxr.geometry.boxes import CORNERS

SYNTHETIC = "synthetic finding"
"""Label that every row and every image carries."""
_EDGES = zip(CORNERS, ("Left", "Top", "Right", "Bottom"), strict=True)

IMAGES: Columns = {
    "job_id": Column(pl.String, "Job, and name of the edited image."),
    "image_id": Column(pl.String, "Healthy source image."),
    "study_id": Column(pl.String, "Its study."),
    "subject_id": Column(pl.String, "Its patient."),
    "split": Column(pl.String, "Split of the patient: train, validate or test."),
    "subset": Column(pl.String, "Folder of the exports: train, val or test."),
    "finding": Column(pl.String, "Finding that was put in."),
    "rank": Column(pl.Int64, "Rank among the edited images of its finding, from 0; a size takes the lowest ranks."),
    "asked": Column(pl.Int64, "Images requested of its finding; the sizes fifth and half are fractions of it."),
    "prompt": Column(pl.String, "Sentence that describes the finding, as in a report."),
    "config": Column(pl.String, "Editing configuration."),
    "engine": Column(pl.String, "Editing engine."),
    "rows": Column(pl.Int64, "Height of the original image.", "pixels"),
    "columns": Column(pl.Int64, "Its width.", "pixels"),
    "to_original": Column(pl.List(pl.Float64), "Affine from frame to original pixels, row by row, six numbers."),
    "says": Column(pl.String, "Always `synthetic finding`."),
}
BOXES: Columns = {
    "job_id": Column(pl.String, "Job."),
    "finding": Column(pl.String, "Finding."),
    "number": Column(pl.Int64, "Number of the box within the job, from 0."),
    "kind": Column(pl.String, "conditioning: as requested; visible: tight box of the visible change."),
    "target": Column(pl.String, "Readers whose convention the box follows: source, vindr or mimic."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    "zone": Column(pl.String, "Zone of the lung that the prompt names; empty without one."),
    **{name: Column(pl.Float64, f"{edge_name} edge, half-open.", "frame pixels") for name, edge_name in _EDGES},
    "change_inside": Column(pl.Float64, "Mean absolute change inside the job's boxes.", "grey levels"),
    "change_outside_max": Column(pl.Float64, "Largest absolute change outside them.", "grey levels"),
    "leak": Column(pl.Float64, "Fraction of the squared change outside them."),
    "area": Column(pl.Int64, "Pixels inside them that changed visibly.", "pixels"),
    "config": Column(pl.String, "Configuration that made the image."),
    "drawn": Column(pl.String, "What the engine drew for the job, JSON."),
    "says": Column(pl.String, "Always `synthetic finding`."),
}
JOBS: Columns = {
    "job_id": Column(pl.String, "Job."),
    "finding": Column(pl.String, "Finding."),
    "planned": Column(pl.Boolean, "Always true."),
    "placed": Column(pl.Boolean, "Whether its boxes could be placed."),
    "edited": Column(pl.Boolean, "Whether its image was edited."),
    "exported": Column(pl.Boolean, "Whether it is in the dataset."),
    "stage": Column(pl.String, "Stage at which it stopped; empty for an exported job."),
    "reason": Column(pl.String, "Code of the reason ([reasons.md](reasons.md)), or `spare`: edited, but not needed."),
}
CONSERVATION: Columns = {
    "finding": Column(pl.String, "Finding, or `all`."),
    "asked": Column(pl.Int64, "Images requested."),
    "planned": Column(pl.Int64, "Jobs planned, spare ones included."),
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
