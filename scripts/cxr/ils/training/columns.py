"""Columns of the tables that a training writes, importable without torch."""

import polars as pl

from cxr.base.columns import Column

UPDATES = {
    "update": Column(pl.Int64, "Update, from 1."),
    "epoch": Column(pl.Int64, "Its epoch, from 1."),
    "learning_rate": Column(pl.Float64, "Learning rate of the update."),
    "loss": Column(pl.Float64, "Sum of the next three."),
    "text": Column(pl.Float64, "Cross-entropy of the answers' tokens, times its weight."),
    "bce": Column(pl.Float64, "Binary cross-entropy of the masks, times its weight."),
    "dice": Column(pl.Float64, "Dice loss of the masks, times its weight."),
    "gradient_norm": Column(pl.Float64, "Norm of the gradient before it is clipped."),
    "positives": Column(pl.Int64, "Pairs of the update that have a mask."),
    "pairs": Column(pl.Int64, "Pairs of the update."),
    "skipped": Column(pl.Boolean, "Whether the update was skipped, because its loss or gradient is not a number."),
}
EPOCHS = {
    "epoch": Column(pl.Int64, "Epoch after which the validation split was scored, from 1."),
    "update": Column(pl.Int64, "Updates until then."),
    "giou": Column(pl.Float64, "gIoU of the positive pairs, a fraction."),
    "ciou": Column(pl.Float64, "cIoU of the positive pairs, a fraction."),
    "n_acc": Column(pl.Float64, "N-Acc: fraction of the negative pairs with an empty mask."),
    "value": Column(
        pl.Float64, "Score by which the kept epoch is chosen (`training.<engine>.keep`); NaN without positive pairs."
    ),
}
