"""Draw the images of the reader study: edited ones that are no trial jobs, and as many real ones of each finding."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shard
from cxr.base.jobs import log
from cxr.base.review_units import REVIEW_UNITS
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.plotting.encoding import encode_image
from cxr.semisyn.readers.reading import GENERATED, REAL
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
class ReadersOptions:
    """images: per finding and source; reference: {name, format, path, image_id, role, classes} of the real images."""

    images: int
    seed: int
    findings: list[str]
    reference: dict


@dataclass(frozen=True)
class ReaderImage:
    """One image of the study: its finding, its job (empty for a real image) and its image."""

    finding: str
    job_id: str
    image_id: str

    def key(self, seed: int) -> str:
        """Return a key that reveals nothing about the image."""
        return f"{stable_hash(seed, 'unit', self.finding, self.job_id, self.image_id):016x}"


def run(
    *,
    plan: str,
    reference: str,
    edited: list[str],
    frames: list[str],
    units: str,
    page_units: str,
    options: ReadersOptions,
) -> None:
    """Draw the images; write what each is to ``units`` (:data:`UNITS`), and the input of the pages to ``page_units``.

    ``plan``: jobs; ``edited``: the shards of the chosen configuration; ``frames``: all shards of the cohort's frames.
    Raises UserError where there is no fresh generated image, or no real one.
    """
    fresh = read_table(plan).filter(~pl.col("trial"))
    edited_ids = sorted(name for path in edited for name in _image_ids(path))
    jobs = fresh.filter(pl.col("job_id").is_in(edited_ids)).select("finding", "job_id", "image_id")
    if not len(jobs):
        raise UserError(
            "no edited image is left that no configuration was chosen by: raise semisyn.dataset.per_finding above "
            "semisyn.selection.samples"
        )
    at_hand = {name for path in frames for name in _image_ids(path)}
    boxes = read_reference(Reference(**options.reference), options.findings).boxes
    real = boxes.filter(pl.col("image_id").is_in(list(at_hand))).select("finding", "image_id").unique()
    if not len(real):
        raise UserError(
            f"semisyn.references.{options.reference['name']} has no image of the cohort with a finding: name another "
            "reference in semisyn.readers.reference"
        )
    generated = [ReaderImage(*row) for row in jobs.iter_rows()]
    selections = (
        draw_images(generated, options),
        draw_images([ReaderImage(finding, "", image) for finding, image in real.iter_rows()], options),
    )
    pictures = _read_images(frames, {drawn_image.image_id for drawn_image in selections[1]}) | _read_images(
        edited, {drawn_image.job_id for drawn_image in selections[0]}
    )
    rows, judged = [], []
    for source, drawn_images in zip((GENERATED, REAL), selections, strict=True):
        for drawn_image in drawn_images:
            unit = drawn_image.key(options.seed)
            rows.append((unit, source, drawn_image.finding, drawn_image.job_id, drawn_image.image_id))
            picture = encode_image(".png", pictures[drawn_image.job_id or drawn_image.image_id], PNG)
            judged.append((unit, picture, None, QUESTION, "", [], "", "", None, True))
    write_table(units, pl.DataFrame(rows, schema=schema(UNITS), orient="row").sort("unit"), UNITS)
    write_table(page_units, pl.DataFrame(judged, schema=schema(REVIEW_UNITS), orient="row").sort("unit"), REVIEW_UNITS)


def draw_images(candidates: Iterable[ReaderImage], options: ReadersOptions) -> list[ReaderImage]:
    """Return up to ``options.images`` of each finding, in the order of their hashes; log a warning for too few.

    An image with several findings is used for one of them.
    """
    drawn_images: list[ReaderImage] = []
    used: set[tuple[str, str]] = set()
    every = sorted(
        candidates,
        key=lambda candidate: stable_hash(options.seed, candidate.finding, candidate.job_id, candidate.image_id),
    )
    for finding in options.findings:
        finding_images = [
            candidate
            for candidate in every
            if candidate.finding == finding and (candidate.job_id, candidate.image_id) not in used
        ]
        finding_images = finding_images[: options.images]
        used |= {(candidate.job_id, candidate.image_id) for candidate in finding_images}
        drawn_images += finding_images
        if len(finding_images) < options.images:
            kind = GENERATED if any(candidate.job_id for candidate in every) else REAL
            log.warning("readers: %s has %d %s images, not %d", finding, len(finding_images), kind, options.images)
    return drawn_images


def _image_ids(path: str) -> list[str]:
    with Shard(path) as shard:
        return list(shard.ids)


def _read_images(paths: Sequence[str], names: set[str]) -> Mapping[str, np.ndarray]:
    pictures = {}
    for path in map(Path, paths):
        with Shard(path) as shard:
            pictures |= {name: shard.get("image", name) for name in shard.ids if name in names}
    return pictures
