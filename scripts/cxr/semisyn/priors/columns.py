"""Columns of the stage's tables."""

import polars as pl

from cxr.base.columns import Column

_LUNG = "% of the lung's box"
SAMPLES = {
    "finding": Column(pl.String, "Finding."),
    "reference": Column(pl.String, "Reference that the box is from."),
    "image_id": Column(pl.String, "Image."),
    "side": Column(pl.String, "Lung of the box, right or left; empty for the heart and for a box without a lung."),
    "cx": Column(pl.Float64, "Centre from the lung's lateral edge.", _LUNG),
    "cy": Column(pl.Float64, "Centre from the lung's top.", _LUNG),
    "w": Column(pl.Float64, "Width.", _LUNG),
    "h": Column(pl.Float64, "Height.", _LUNG),
    "ctr": Column(pl.Float64, "Cardiothoracic ratio of the image, by its organs.", "%"),
    "left_out": Column(pl.String, "Why the fit excludes it; empty if it does not."),
}
"""One row for each box; one for each image of a finding of the heart."""
FITS = {
    "finding": Column(pl.String, "Finding."),
    "element": Column(pl.String, "Element: center, size, or center_x, center_y, width, height, or ctr."),
    "family": Column(pl.String, "Family of distributions, by scipy's name; mvlognormal: of two dimensions."),
    "parameters": Column(pl.String, "Its parameters as JSON."),
    "n": Column(pl.Int64, "Samples of the fit; for a prior that is not fitted, the available ones."),
    "rss": Column(pl.Float64, "Sum of squared differences between density and histogram; null if not computed."),
    "spearman_p": Column(pl.Float64, "p of Spearman's test of independence of both numbers; null for one number."),
    "chosen": Column(pl.Boolean, "Whether it becomes the prior."),
    "origin": Column(pl.String, "paper, file (the user's) or fit."),
}
ZONES = {
    "side": Column(pl.String, "Lung."),
    "zone": Column(pl.String, "Zone."),
    **{
        name: Column(pl.Float64, f"{edge_name} edge, as the image shows the lung.", _LUNG)
        for name, edge_name in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
    "patients": Column(pl.Int64, "Patients of the fit."),
    "origin": Column(pl.String, "paper, file (the user's) or fit."),
}
SYMMETRY = {
    "finding": Column(pl.String, "Finding."),
    "element": Column(pl.String, "cx, cy, w or h."),
    "n_right": Column(pl.Int64, "Boxes in right lungs."),
    "n_left": Column(pl.Int64, "Boxes in left lungs, mirrored."),
    "ks": Column(pl.Float64, "Distance of Kolmogorov and Smirnov between both."),
    "p": Column(pl.Float64, "Its p; reported, not acted on."),
}
