"""Columns of the stage's tables."""

import polars as pl

from cxr.base.columns import Column, Columns

TRAIN_SUBSET = "train"
"""The dataset's folder of which detectors learn."""

UPDATES: Columns = {
    "update": Column(pl.Int64, "Number of the update of the weights, from 1."),
    "images": Column(pl.Int64, "Images shown until then."),
    "loss_class": Column(pl.Float64, "Loss of the classes on its batch."),
    "loss_box": Column(pl.Float64, "Loss of the boxes on it, with its weight; a training minimises the sum of both."),
}
EPOCHS: Columns = {
    "epoch": Column(pl.Float64, "How often an image has been shown until then, in the mean."),
    "updates": Column(pl.Int64, "Updates of the weights until then."),
    "images": Column(pl.Int64, "Images shown until then."),
    "loss_class": Column(pl.Float64, "Mean loss of the classes in the updates since the row before."),
    "loss_box": Column(pl.Float64, "The same of the boxes."),
    "map1070_validation": Column(
        pl.Float64, "Mean AP on the references of the role val; null without any, and where it was not measured.", "%"
    ),
}
POOLS: Columns = {
    "pool": Column(pl.String, "real, synthetic, shuffled (boxes of other jobs) or unedited (sources, without a box)."),
    "reference": Column(pl.String, "Reference of real images; empty for the others."),
    "images": Column(pl.Int64, "Images."),
    "patients": Column(pl.Int64, "Their patients."),
    "boxes": Column(pl.Int64, "Boxes."),
    "without_frame": Column(pl.Int64, "Images of the reference that no shard of frames has; they are left out."),
    "share_first": Column(pl.Float64, "Share of the pool in a batch at the beginning."),
    "share_last": Column(pl.Float64, "Share at the end."),
    "epochs": Column(pl.Float64, "How often an image is shown, in the mean over the pool."),
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
    "subject_id": Column(pl.String, "Its patient, by the manifest; the image where nothing tells it."),
    "path": Column(pl.String, "File."),
    "rank": Column(pl.Int64, "Always 0."),
    "view": Column(pl.String, "View, by the manifest; null where nothing tells it."),
    "position": Column(pl.String, "Position of the patient, by the manifest; null where nothing tells it."),
}
"""As frames reads a shard of the cohort."""
