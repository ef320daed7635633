"""Columns of the tables that the cohort stage writes."""

import polars as pl

from cxr.base.columns import Column, Columns

IDS: Columns = {
    "image_id": Column(pl.String, "Image."),
    "study_id": Column(pl.String, "Its study."),
    "subject_id": Column(pl.String, "Its patient."),
}
SHARD: Columns = IDS | {
    "split": Column(pl.String, "train, validate or test."),
    "path": Column(pl.String, "Image file."),
    "view": Column(pl.String, "View, by its code: PA, AP."),
    "rank": Column(pl.Int32, "Order in which the images of a study are tried, from 0."),
    "report_path": Column(pl.String, "Report file; null where the report is in the next columns, or missing."),
    "report_missing": Column(pl.Boolean, "Whether the named report file is missing."),
    "findings": Column(pl.String, "Findings section, where the cohort's table holds it."),
    "impression": Column(pl.String, "Impression section, where the cohort's table holds it."),
    "acquired": Column(pl.String, "Time of acquisition, text that sorts by time."),
}
IMAGES: Columns = IDS | {
    "split": Column(pl.String, "train, validate or test; null for an image without a patient in any split."),
    "shard": Column(pl.String, "Shard of its patient."),
    "view": Column(pl.String, "View, by its code; null if unknown."),
    "reason": Column(pl.String, "Reason for exclusion; null for an accepted image."),
}


def images(table: pl.DataFrame) -> Columns:
    """Return the columns of the table of images: :data:`IMAGES`, then those that are the manifest's own."""
    manifest_schema = {name: kind for name, kind in table.schema.items() if name not in IMAGES}
    return IMAGES | {name: Column(kind, "Column of the manifest.") for name, kind in manifest_schema.items()}
