"""Columns of the tables that a training writes. The import of this module needs no torch."""

from cxr.base.columns import read_columns

RESOURCE_FILES = ("columns/training.toml",)
UPDATES = read_columns("training", "updates")
EPOCHS = read_columns("training", "epochs")
