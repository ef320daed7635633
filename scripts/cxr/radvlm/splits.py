"""Splits of the whole mix: no subject is in two of them, within a family of sources that share their subjects."""

from collections.abc import Mapping, Sequence

import polars as pl

FAMILIES = {
    "mimic": ("mimic", "ms_cxr", "imagenome"), "chexpert": ("chexpert", "chexpert_plus"), "padchest": ("padchest_gr",),
    "vindr": ("vindr",),
}  # fmt: skip
"""{family: the formats of its sources}; a source of another format is its own family."""
ORDER = ("test", "validate", "train")
"""Which split keeps a subject that is in several."""


def families(formats: Mapping[str, str]) -> dict[str, str]:
    """Return {source: family} of {source: format}; the format of own is that of its cohort."""
    family_by_format = {kind: family for family, kinds in FAMILIES.items() for kind in kinds}
    return {source: family_by_format.get(kind, source) for source, kind in formats.items()}


def conflicts(images: Sequence[pl.DataFrame], family: Mapping[str, str]) -> pl.DataFrame:
    """Return the images (source, image_id, study_id, split, kept) whose subject is kept in another split.

    ``images``: tables of sources, with source, image_id, study_id, subject_id, split. A subject that a family has in
    several splits is kept in test, or else in validate, so that nothing that is scored was trained on.
    """
    columns = ["source", "image_id", "study_id", "subject_id", "split"]
    table = pl.concat([table.select(columns) for table in images])
    rank = pl.col("split").replace_strict(list(ORDER), range(len(ORDER)), return_dtype=pl.Int64)
    whose = pl.struct(pl.col("source").replace_strict(dict(family)), "subject_id")
    table = table.with_columns(first=rank.min().over(whose))
    kept_split = pl.col("first").replace_strict(range(len(ORDER)), list(ORDER), return_dtype=pl.String)
    torn = table.with_columns(kept=kept_split).filter(pl.col("split") != pl.col("kept"))
    return torn.select("source", "image_id", "study_id", "split", "kept").sort("source", "image_id")
