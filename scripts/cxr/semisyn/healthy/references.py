"""The patients of references: their films must not feed training data."""

from collections.abc import Mapping

import polars as pl

from cxr.annotations.reading import image_name, read


def reserved(references: Mapping[str, Mapping], images: pl.DataFrame, patients: bool) -> dict[str, str]:
    """Return {image_id: reference} of the cohort's images that a reference reserves.

    ``references``: {name: format, path, image_id (template)}; ``images``: the cohort's table of images, the excluded
    ones among them; ``patients``: all films of a reference's patients, else only its own images. Raises UserError for a
    file that cannot be read.
    """
    found: dict[str, str] = {}
    for name, told in references.items():
        key = f"semisyn.references.{name}.path"
        named = {image_name(told["image_id"], image) for image in read(key, told["path"], told["format"]).seen}
        own = images.filter(pl.col("image_id").is_in(sorted(named)))
        if patients:
            own = images.join(own.select("subject_id").unique(), on="subject_id", how="semi")
        found = dict.fromkeys(own["image_id"], name) | found
    return found
