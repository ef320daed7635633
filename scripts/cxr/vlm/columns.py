"""Columns of the tables that the stages of vision-language models write."""

import polars as pl

from cxr.base.columns import Column, Columns

UPDATES: Columns = {
    "update": Column(pl.Int64, "Update, from 1."),
    "epoch": Column(pl.Float64, "Epochs done after it."),
    "learning_rate": Column(pl.Float64, "Learning rate of the parts that have none of their own."),
    "loss": Column(pl.Float64, "What is minimised: `text`, or the weighted sum of it and the losses of masks."),
    "text": Column(pl.Float64, "Mean cross-entropy of the answers' tokens."),
    "bce": Column(pl.Float64, "Mean binary cross-entropy of the masks' pixels; null without a mask."),
    "dice": Column(pl.Float64, "Mean Dice loss of the masks that are not empty; null without one."),
    "tokens": Column(pl.Int64, "Tokens of answers, which the loss is on."),
    "masks": Column(pl.Int64, "Masks that its samples give, one for each [SEG]; null of a run without a head."),
    "positives": Column(pl.Int64, "Those of them that are not empty; null of a run without a head."),
    "samples": Column(pl.Int64, "Samples of the update."),
    "by_task": Column(pl.String, "Of each task of the update: its name, its samples and their `text`; between `; `."),
    "gradient_norm": Column(pl.Float64, "Norm of the gradient before it is clipped."),
    "skipped": Column(pl.Boolean, "Whether the update was left out, because its loss or gradient is not a number."),
}
EXCLUDED: Columns = {
    "sample_id": Column(pl.String, "Sample that is not learned."),
    "reason": Column(
        pl.String, "`too_long` for max_length; `reserved`: it holds the model's marks; `no_mask`: a [SEG] has no mask."
    ),
    "tokens": Column(pl.Int64, "Its tokens, the picture's counted; 0 where they were not counted.", "tokens"),
}
PROBES: Columns = {
    "convention": Column(pl.String, "Convention of coordinates, in the question and in reading the answer."),
    "queries": Column(pl.Int64, "Validation lines that were asked."),
    "iou": Column(pl.Float64, "Mean IoU of the answers, a fraction."),
    "chosen": Column(pl.Boolean, "Whether the model is asked under it."),
}
UNUSED: Columns = {
    "line": Column(pl.Int64, "Line of the file of answers, from 1."),
    "sample_id": Column(pl.String, "Sample that it names; empty where it names none."),
    "reason": Column(
        pl.String, "`unknown_sample`: no such turn is asked; `duplicate`: it failed; `bad_line`: no sample_id and text."
    ),
}
SELECTED: Columns = {
    "task": Column(pl.String, "Task; `grounding` of queries."),
    "source": Column(pl.String, "Source."),
    "samples": Column(pl.Int64, "Samples of the set."),
    "asked": Column(pl.Int64, "Of them, those that are asked."),
}
