"""Columns of the stage's tables."""

import polars as pl

from cxr.base.columns import Column

SCORES = {
    "run": Column(pl.String, "Run, or the paper's detector and number of synthetic images."),
    "seed": Column(pl.Int64, "Seed, in the order of the run's files; null for the mean over seeds."),
    "reference": Column(pl.String, "Reference that the run is scored against."),
    "finding": Column(pl.String, "Finding, or `mean` over those with reference boxes."),
    "metric": Column(pl.String, "ap1070 and ap30, ap50_sample, recall at 1/4, 1/2, 1 and 2 false boxes an image."),
    "value": Column(pl.Float64, "Value.", "%"),
    "low": Column(pl.Float64, "Lower end of the interval, by patients; null where there is none.", "%"),
    "high": Column(pl.Float64, "Upper end.", "%"),
    "images": Column(pl.Int64, "Images of the reference."),
    "boxes": Column(pl.Int64, "Reference boxes."),
    "patients": Column(pl.Int64, "Patients of the images."),
    "prior_seen_reference": Column(pl.Boolean, "Whether the synthetic boxes' priors were fitted to it."),
    "source": Column(pl.String, "`ours` or `paper`."),
}
DIFFERENCES = {
    "reference": Column(pl.String, "Reference."),
    "run": Column(pl.String, "Run."),
    "against": Column(pl.String, "Run that it is compared with."),
    "finding": Column(pl.String, "Finding, or `mean`."),
    "metric": Column(pl.String, "Metric."),
    "difference": Column(pl.Float64, "Value of `run` minus that of `against`, means over seeds.", "points"),
    "low": Column(pl.Float64, "Lower end of its interval: paired draws of patients.", "points"),
    "high": Column(pl.Float64, "Upper end.", "points"),
    "significant": Column(pl.Boolean, "Whether the interval excludes 0."),
    "share_below_zero": Column(pl.Float64, "Fraction of the draws below 0; one of exactly 0 counts half."),
    "holm": Column(pl.Float64, "Holm's p over all comparisons of this table with this reference and metric."),
    **{
        f"paper_p_{kind}_{count}": Column(
            pl.Float64,
            f"The paper's test, Wilcoxon on {count} {kind} replicates. No evidence: without any difference it rejects "
            "in nearly half of all experiments.",
        )
        for count in (100, 1000)
        for kind in ("random", "stratified")
    },
    "seeds": Column(pl.Int64, "Seeds of the run that has fewer."),
    "seed_range": Column(pl.String, "Lowest and highest value of `run` over its seeds, in percent."),
}
TABLE_1 = {
    "source": Column(pl.String, "`ours` or `paper`."),
    "run": Column(pl.String, "Run; the paper's detector."),
    "synthetic": Column(pl.Int64, "Synthetic training images; null if the run does not state them."),
    "reference": Column(pl.String, "Reference."),
    "map1070": Column(pl.Float64, "Mean AP over IoU .1 to .7 and over findings.", "%"),
    "map30": Column(pl.Float64, "Mean AP at IoU .3.", "%"),
}
