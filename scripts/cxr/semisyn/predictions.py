"""Columns of a detector's predictions: what the stage semisyn_detectors writes and semisyn_detection reads."""

import polars as pl

from cxr.base.columns import Column

PREDICTIONS = {
    "image_id": Column(pl.String, "Image, as the reference names it."),
    "finding": Column(pl.String, "Finding."),
    "confidence": Column(pl.Float64, "Confidence, 0 to 1."),
    **{
        name: Column(pl.Float64, f"{what} edge, half-open.", "original px")
        for name, what in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
}
