"""Find the images of patients in references, which must not become training data."""

from collections.abc import Mapping

import polars as pl

from cxr.annotations.regions import image_name, read_annotations


def find_reserved(references: Mapping[str, Mapping], images: pl.DataFrame, patients: bool) -> dict[str, str]:
    """Return {image_id: reference} of the cohort's images that a reference reserves.

    ``references``: {name: {format, path, image_id (template)}}; ``images``: all images of the cohort, excluded ones
    too; ``patients``: reserve all images of a reference's patients, else only its own images. Raises UserError for a
    file that cannot be read.
    """
    reference_by_image: dict[str, str] = {}
    for name, settings in references.items():
        key = f"semisyn.references.{name}.path"
        image_ids = {
            image_name(settings["image_id"], image)
            for image in read_annotations(key, settings["path"], settings["format"]).seen
        }
        reference_images = images.filter(pl.col("image_id").is_in(sorted(image_ids)))
        reserved_images = reference_images
        if patients:
            reserved_images = images.join(reference_images.select("subject_id").unique(), on="subject_id", how="semi")
        reference_by_image = dict.fromkeys(reserved_images["image_id"], name) | reference_by_image
    return reference_by_image
