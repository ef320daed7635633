"""Draw the images of the reader study: edited ones that are no trial jobs, and as many real ones of each finding."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import cv2
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.base.jobs import log
from cxr.base.review_units import REVIEW_UNITS
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.plotting.encoding import encode_image
from cxr.semisyn.readers.reading import GENERATED, REAL
from cxr.semisyn.readers.settings import SEED
from cxr.semisyn.references import Reference, read_reference

QUESTION = "Read this X-ray."
PNG = (cv2.IMWRITE_PNG_COMPRESSION, 9)
UNITS = {
    "unit": Column(pl.String, "Key of the image in the pages' table, without information."),
    "source": Column(pl.String, "generated or real."),
    "finding": Column(pl.String, "Its finding: the job's, or the reference's."),
    "job_id": Column(pl.String, "Job of a generated image; empty for a real one."),
    "image_id": Column(pl.String, "The real image, or the source of the generated one."),
}


@dataclass(frozen=True)
class ReaderImage:
    """One image of the study: its finding, its job (empty for a real image) and its image."""

    finding: str
    job_id: str
    image_id: str

    @property
    def key(self) -> str:
        """A key that reveals nothing about the image."""
        return f"{stable_hash(SEED, 'unit', self.finding, self.job_id, self.image_id):016x}"


def run(
    *, plan: str, annotations: str, edited: list[str], frames: list[str], units: str, page_units: str, images: int,
    findings: list[str], reference: dict,
) -> None:  # fmt: skip
    """Draw the images; write what each is to ``units`` (:data:`UNITS`), and the input of the pages to ``page_units``.

    ``plan``: jobs; ``edited``: the shards of the chosen configuration; ``frames``: all shards of the cohort's frames;
    ``images``: per finding and source; ``reference``: {name, format, path, image_id, role, classes} of the real images;
    ``annotations``: unused, its path is in ``reference``.
    Raises UserError where there is no fresh generated image, or no real one.
    """
    with Shards(edited) as edited_shards, Shards(frames) as frame_shards:
        fresh = read_table(plan).filter(~pl.col("trial"), pl.col("job_id").is_in(edited_shards.ids))
        jobs = fresh.select("finding", "job_id", "image_id")
        if not len(jobs):
            raise UserError(
                "no edited image is left that no configuration was chosen by: raise semisyn.dataset.per_finding above "
                "semisyn.selection.samples"
            )
        boxes = read_reference(Reference(**reference), findings).boxes
        real = boxes.filter(pl.col("image_id").is_in(frame_shards.ids)).select("finding", "image_id").unique()
        if not len(real):
            raise UserError(
                f"semisyn.references.{reference['name']} has no image of the cohort with a finding: name another "
                "reference in semisyn.readers.reference"
            )
        candidates = {
            GENERATED: [ReaderImage(*row) for row in jobs.iter_rows()],
            REAL: [ReaderImage(finding, "", image) for finding, image in real.iter_rows()],
        }
        rows, judged = [], []
        for source, source_images in candidates.items():
            for image in draw_images(source_images, images, findings):
                name, shards = (image.job_id, edited_shards) if image.job_id else (image.image_id, frame_shards)
                picture = encode_image(".png", shards.shard_of(name).get("image", name), PNG)
                rows.append((image.key, source, image.finding, image.job_id, image.image_id))
                judged.append((image.key, picture, None, QUESTION, "", [], "", "", None, True))
    write_table(units, pl.DataFrame(rows, schema=schema(UNITS), orient="row").sort("unit"), UNITS)
    write_table(page_units, pl.DataFrame(judged, schema=schema(REVIEW_UNITS), orient="row").sort("unit"), REVIEW_UNITS)


def draw_images(candidates: Iterable[ReaderImage], images: int, findings: Sequence[str]) -> list[ReaderImage]:
    """Return up to ``images`` of each finding, in the order of their hashes; log a warning for too few.

    An image with several findings is used for one of them.
    """
    every = sorted(
        candidates, key=lambda candidate: stable_hash(SEED, candidate.finding, candidate.job_id, candidate.image_id)
    )
    drawn_images: list[ReaderImage] = []
    for finding in findings:
        used = {(image.job_id, image.image_id) for image in drawn_images}
        finding_images = [
            image for image in every if image.finding == finding and (image.job_id, image.image_id) not in used
        ][:images]
        drawn_images += finding_images
        if len(finding_images) < images:
            kind = GENERATED if any(image.job_id for image in every) else REAL
            log.warning("readers: %s has %d %s images, not %d", finding, len(finding_images), kind, images)
    return drawn_images
