"""Columns of the stage's tables."""

import polars as pl

from cxr.base.columns import Column, Columns

TRAIN_SUBSET = "train"
"""The dataset's subset for training."""

UPDATES: Columns = {
    "update": Column(pl.Int64, "Number of the step, from 1."),
    "images": Column(pl.Int64, "Training images used until then, repetitions included."),
    "loss_class": Column(pl.Float64, "Class loss on the batch."),
    "loss_box": Column(pl.Float64, "Weighted box loss on the batch; the training minimises the sum of both."),
}
EPOCHS: Columns = {
    "epoch": Column(pl.Float64, "Mean number of times that an image was used until then."),
    "updates": Column(pl.Int64, "Steps until then."),
    "images": Column(pl.Int64, "Training images used until then, repetitions included."),
    "loss_class": Column(pl.Float64, "Mean class loss of the steps since the previous row."),
    "loss_box": Column(pl.Float64, "Mean box loss of the same steps."),
    "map1070_validation": Column(
        pl.Float64, "Mean AP on the references with the role val; null if there is none or it was not measured.", "%"
    ),
}
POOLS: Columns = {
    "pool": Column(pl.String, "real, synthetic, shuffled (boxes of other jobs) or unedited (sources, without a box)."),
    "reference": Column(pl.String, "Reference of real images; empty for the others."),
    "images": Column(pl.Int64, "Images."),
    "patients": Column(pl.Int64, "Their patients."),
    "boxes": Column(pl.Int64, "Boxes."),
    "without_frame": Column(pl.Int64, "Images of the reference without a frame; they are excluded."),
    "share_first": Column(pl.Float64, "Fraction of a batch from this pool at the first step."),
    "share_last": Column(pl.Float64, "Fraction at the last step."),
    "epochs": Column(pl.Float64, "Mean number of times that an image of the pool is used."),
}
ROLES: Columns = {
    "set": Column(pl.String, "Reference, or `synthetic`: the sources of the dataset's train images."),
    "role": Column(pl.String, "train, val or test."),
    "images": Column(pl.Int64, "Images."),
    "patients": Column(pl.Int64, "Patients; no patient is in sets of two roles."),
    "boxes": Column(pl.Int64, "Boxes of findings; null for the synthetic images."),
    "left_out": Column(pl.String, "Regions without a finding or an area, by reason, JSON."),
}
PICTURES: Columns = {
    "image_id": Column(pl.String, "Image, as the reference names it."),
    "study_id": Column(pl.String, "The same: each image is a study of its own."),
    "subject_id": Column(pl.String, "Its patient from the manifest, or the image id."),
    "path": Column(pl.String, "File."),
    "rank": Column(pl.Int64, "Always 0."),
    "view": Column(pl.String, "View from the manifest; null if not given."),
    "position": Column(pl.String, "Position of the patient from the manifest; null if not given."),
}
"""The columns that the stage frames reads from a shard of the cohort."""
