"""Columns of the tables that the stage radvlm_sources writes for each source."""

import polars as pl

from cxr.base.columns import Column, Columns, schema

IMAGES: Columns = {
    "source": Column(pl.String, "Source."),
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Its study; the image where the source names none."),
    "subject_id": Column(pl.String, "Its patient; the image where the source names none."),
    "split": Column(pl.String, "train, validate or test."),
    "view": Column(pl.String, "View, by its code: PA, AP; null if unknown."),
    "sex": Column(pl.String, "F or M; null where the source does not tell."),
    "rows": Column(pl.Int64, "Height of the original picture; null where the source does not tell.", "pixels"),
    "columns": Column(pl.Int64, "Width of the original picture; null where the source does not tell.", "pixels"),
    "path": Column(pl.String, "Image file."),
    "frames": Column(pl.String, "Source whose frames hold it; own: the cohort's."),
}
FACTS: Columns = {
    "fact_id": Column(pl.String, "Stable hash of source, image, kind, name, group, reader and box."),
    "image_id": Column(pl.String, "Image."),
    "kind": Column(pl.String, "label, box (of a finding), region or phrase."),
    "name": Column(pl.String, "The label, the finding, the region, or the words of the phrase."),
    "value": Column(pl.String, "present, absent or uncertain, as radvlm.sources.uncertain reads it; null of no label."),
    "stated": Column(pl.String, "present, absent or uncertain, as the source states it; null of no label."),
    "group": Column(pl.String, "What the boxes of one phrase, or of one finding of an image, have in common."),
    "reader": Column(
        pl.String,
        "Reader of a box that was fused with others, or of an image's label that is not asked; null of what is.",
    ),
    **{
        name: Column(pl.Float64, f"{what} edge of the box; null without one.", "original pixels")
        for name, what in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
}
COUNTS: Columns = {
    "what": Column(pl.String, "What is counted."),
    "number": Column(pl.Int64, "How many."),
}
IMAGES_SCHEMA, FACTS_SCHEMA = schema(IMAGES), schema(FACTS)
