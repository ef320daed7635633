"""Columns of a table of items that experts judge. Every system may write one, and the stage ``review`` shows it."""

import polars as pl

from cxr.base.columns import Column

REVIEW_UNITS = {
    "unit": Column(pl.String, "Key of the item; the page does not show it."),
    "picture": Column(pl.Binary, "The image as PNG; all images have the same encoder and size."),
    "mask": Column(pl.Binary, "Overlay on the image, a PNG with one bit per pixel; null for none."),
    "question": Column(pl.String, "Heading of the item."),
    "hint": Column(pl.String, "Remark below the heading, or empty."),
    "facts": Column(pl.List(pl.List(pl.String)), "Facts about the item, pairs of a label and a value."),
    "head": Column(pl.String, "Heading of the text beside the image, or empty."),
    "text": Column(pl.String, "Text beside the image, or empty."),
    "also": Column(pl.Binary, "Second overlay, shown when a key is pressed; a PNG like `mask`, null for none."),
    "sides": Column(pl.Boolean, "Whether the image's left is the patient's right, so that the page marks R and L."),
}
"""Columns of the items that experts see. Facts that they must not see are in a second table, with the key ``unit``."""
