"""Columns of the tables of scores."""

import polars as pl

from cxr.base.columns import Column, Columns

BLIND = {
    "largest": "the largest candidate",
    "candidates": "all candidates",
    "mean_box": "the mean box of the source's training lines",
    "picture": "the whole picture",
    "shuffled": "the model's own answer to another query of the image",
}
"""Answers that no query is read for."""
QUERIES: Columns = {
    "query_id": Column(pl.String, "Query of the test split."),
    "source": Column(pl.String, "Its source."),
    "image_id": Column(pl.String, "Its image."),
    "subject_id": Column(pl.String, "Its subject."),
    "kind": Column(pl.String, "single, subset or all."),
    "trivial": Column(pl.Boolean, "Whether the image has one candidate."),
    "by_class": Column(pl.Boolean, "Whether the class's word alone selects the answer."),
    "true": Column(pl.Int64, "True boxes."),
    "boxes": Column(
        pl.List(pl.List(pl.Int64)), "Boxes that were read, x1, y1, x2, y2 on the grid of 1000.", "grid units"
    ),
    "convention": Column(pl.String, "Convention of coordinates that they were read in."),
    "outcome": Column(pl.String, "`boxes`, `none`, `unreadable`, or `failed` without an answer."),
    "reason": Column(pl.String, "Why there is no box; empty with one."),
    "notes": Column(pl.List(pl.String), "What was mended: swapped, clipped, cut, bare, left_out, truncated."),
    "iou": Column(pl.Float64, "IoU of the unions of boxes, a fraction; null where a failure is left out."),
    "matched": Column(pl.Float64, "Sum of the IoU of matched boxes over the larger number of boxes."),
    "paper": Column(pl.Float64, "IoU if every number is read on a grid of 1000, as the paper read all models."),
    **{name: Column(pl.Float64, f"IoU of {baseline}; null without one.") for name, baseline in BLIND.items()},
}
SCORES: Columns = {
    "source": Column(pl.String, "Source; `total`: all."),
    "part": Column(pl.String, "all, not_trivial, not_by_class, single, subset or all_of_class."),
    "queries": Column(pl.Int64, "Queries that are scored."),
    "subjects": Column(pl.Int64, "Their subjects."),
    "iou": Column(pl.Float64, "Mean IoU.", "%"),
    "iou_low": Column(pl.Float64, "Lower end of its interval, by subject.", "%"),
    "iou_high": Column(pl.Float64, "Upper end.", "%"),
    "acc": Column(pl.Float64, "Queries of IoU over `medground.scoring.tau`.", "%"),
    "acc_low": Column(pl.Float64, "Lower end of its interval.", "%"),
    "acc_high": Column(pl.Float64, "Upper end.", "%"),
    "matched": Column(pl.Float64, "Mean over matched boxes.", "%"),
    "paper": Column(pl.Float64, "Mean IoU if every number is read on a grid of 1000.", "%"),
    "unreadable": Column(pl.Float64, "Queries without a readable box.", "%"),
    "failed": Column(pl.Int64, "Queries without an answer."),
    **{name: Column(pl.Float64, f"Mean IoU of {baseline}.", "%") for name, baseline in BLIND.items()},
}
SENSITIVITY: Columns = {
    "source": Column(pl.String, "Source; `total`: all."),
    "pairs_of": Column(pl.String, "all pairs, or those whose answers are of the same_class or of other_classes."),
    "tau": Column(pl.Float64, "IoU that both answers must exceed."),
    "pairs": Column(pl.Int64, "Pairs that are scored."),
    "left_out": Column(pl.Int64, "Pairs with a member that is not scored."),
    "sensitivity": Column(pl.Float64, "Semantic Sensitivity: pairs with both answers right.", "%"),
    "low": Column(pl.Float64, "Lower end of its interval, by subject.", "%"),
    "high": Column(pl.Float64, "Upper end.", "%"),
    "swapped": Column(pl.Float64, "The same with the two answers exchanged.", "%"),
}
COMPARISON: Columns = {
    "by": Column(pl.String, "ours, blind (a baseline that reads no query) or paper."),
    "table": Column(
        pl.String,
        "iou (Table 3 of the paper), sensitivity (Table 4), or zero_shot: iou on sources of `use: zero_shot`. The "
        "images are new there; their wording need not be.",
    ),
    "model": Column(pl.String, "Run, baseline, or model of the paper with its state."),
    "source": Column(pl.String, "Source, or dataset of the paper."),
    "number": Column(pl.Int64, "Queries or pairs; null for the paper."),
    "value": Column(pl.Float64, "Mean IoU or Semantic Sensitivity.", "%"),
    "low": Column(pl.Float64, "Lower end of its interval.", "%"),
    "high": Column(pl.Float64, "Upper end.", "%"),
}
