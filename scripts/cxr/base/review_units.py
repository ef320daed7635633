"""Columns of the table of units that experts judge. Any system can write it; the stage ``review`` makes its pages."""

import polars as pl

from cxr.base.columns import Column

REVIEW_UNITS = {
    "unit": Column(pl.String, "Key of the unit; it is not on the page."),
    "picture": Column(pl.Binary, "The image: PNG, all of one encoder and size."),
    "mask": Column(pl.Binary, "What is laid over the image: PNG of one bit; null for nothing."),
    "question": Column(pl.String, "Heading of the item."),
    "hint": Column(pl.String, "Remark below it, or empty."),
    "facts": Column(pl.List(pl.List(pl.String)), "What is said of the item: pairs of a label and a value."),
    "head": Column(pl.String, "Heading of the text beside the image, or empty."),
    "text": Column(pl.String, "That text, or empty."),
    "also": Column(pl.Binary, "What a key shows besides: PNG of one bit; null for nothing."),
    "sides": Column(pl.Boolean, "Whether the image's left is the patient's right, so that R and L stand below it."),
}
"""Columns of the units on the pages. Facts that experts must not see are in a separate table, joined by ``unit``."""
