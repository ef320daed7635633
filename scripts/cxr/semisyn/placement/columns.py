"""Columns of the stage's tables."""

import polars as pl

from cxr.base.columns import Column

PLAN = {
    "job_id": Column(pl.String, "Job: the finding and its number."),
    "finding": Column(pl.String, "Finding to make."),
    "index": Column(pl.Int64, "Number of the job within its finding, from 0."),
    "image_id": Column(pl.String, "Healthy image that it uses."),
    "shard": Column(pl.String, "Shard of that image."),
    "prompt": Column(pl.String, "Sentence that describes the finding, as in a report."),
    "class_prompt": Column(pl.String, "The finding's name, the prompt of configurations with `prompt: label`."),
    "is_spare": Column(pl.Boolean, "Whether it is a spare job, which replaces one that fails."),
    "trial": Column(pl.Boolean, "Whether every configuration edits it, not the chosen one alone."),
}
BOXES = {
    "job_id": Column(pl.String, "Job."),
    "image_id": Column(pl.String, "Healthy image that it uses."),
    "finding": Column(pl.String, "Finding."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    "zone": Column(pl.String, "Zone of the lung that the prompt names; empty without one."),
    "cx": Column(pl.Float64, "Centre from the lung's lateral edge; null for the heart.", "% of the lung's box"),
    "cy": Column(pl.Float64, "Centre from the lung's top; null for the heart.", "% of the lung's box"),
    "w": Column(pl.Float64, "Width, before clipping to the image; null for the heart.", "% of the lung's box"),
    "h": Column(pl.Float64, "Height, before clipping to the image; null for the heart.", "% of the lung's box"),
    **{
        name: Column(pl.Float64, f"{edge_name} edge of the box, half-open, not rounded.", "frame px")
        for name, edge_name in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
    "mass_centre": Column(pl.Float64, "Mass of the centre's prior in the allowed region; null for the heart."),
    "mass_size": Column(pl.Float64, "Mass of the prior of the size, or of the ratio, in the allowed region."),
    "tries": Column(pl.Int64, "Try that succeeded, from 1."),
    "ctr_from": Column(pl.Float64, "Cardiothoracic ratio of the image; null for a box in a lung.", "fraction"),
    "ctr_to": Column(pl.Float64, "Cardiothoracic ratio to reach; null for a box in a lung.", "fraction"),
}
"""One row for each box."""
