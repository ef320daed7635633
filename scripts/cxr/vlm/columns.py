"""Columns of the tables that the stages of vision-language models write."""

import polars as pl

from cxr.base.columns import Column, Columns

UPDATES: Columns = {
    "update": Column(pl.Int64, "Number of the optimizer step, from 1."),
    "epoch": Column(pl.Float64, "Epochs completed after the step."),
    "learning_rate": Column(pl.Float64, "Learning rate of the parts without a separate rate."),
    "loss": Column(pl.Float64, "Loss that is minimised: `text`, or the weighted sum of `text`, `bce` and `dice`."),
    "text": Column(pl.Float64, "Mean cross-entropy of the answers' tokens."),
    "bce": Column(pl.Float64, "Mean binary cross-entropy of the masks' pixels; null without a mask."),
    "dice": Column(pl.Float64, "Mean Dice loss of the non-empty masks; null without a non-empty mask."),
    "tokens": Column(pl.Int64, "Tokens of answers over which the loss is computed."),
    "masks": Column(pl.Int64, "Masks of the step's samples, one for each [SEG]; null for a run without a mask head."),
    "positives": Column(pl.Int64, "Masks that are not empty; null for a run without a mask head."),
    "samples": Column(pl.Int64, "Samples in the step."),
    "by_task": Column(pl.String, "Name, number of samples and mean `text` of each task, separated by `; `."),
    "gradient_norm": Column(pl.Float64, "Norm of the gradient before clipping."),
    "skipped": Column(pl.Boolean, "Whether the step was skipped, because its loss or gradient is not a number."),
}
EXCLUDED: Columns = {
    "sample_id": Column(pl.String, "Sample that is not used for tuning."),
    "reason": Column(
        pl.String, "`too_long`: above max_length; `reserved`: has special tokens; `no_mask`: a [SEG] has no mask."
    ),
    "tokens": Column(pl.Int64, "Length of the sample with its image; 0 if it was not counted.", "tokens"),
}
PROBES: Columns = {
    "convention": Column(pl.String, "Convention of coordinates in the questions and the answers."),
    "queries": Column(pl.Int64, "Number of validation lines that were asked."),
    "iou": Column(pl.Float64, "Mean IoU of the answers, from 0 to 1."),
    "chosen": Column(pl.Boolean, "Whether the model is later asked in this convention."),
}
UNUSED: Columns = {
    "line": Column(pl.Int64, "Number of the line in the file of answers, from 1."),
    "sample_id": Column(pl.String, "Sample that the line names; empty if it names none."),
    "reason": Column(
        pl.String, "`unknown_sample`: no such turn; `duplicate`: another line has the turn; `bad_line`: no id and text."
    ),
}
SELECTED: Columns = {
    "task": Column(pl.String, "Task of the samples; `grounding` for queries."),
    "source": Column(pl.String, "Source of the samples."),
    "samples": Column(pl.Int64, "Number of samples in the set."),
    "asked": Column(pl.Int64, "Number of these samples that are asked."),
}
