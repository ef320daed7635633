"""Plan the jobs: assign each a healthy image and a prompt. Within a finding, uses of images differ by at most one."""

import logging
import math
import re
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.errors import UserError, count_phrase
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import SIDES
from cxr.semisyn.findings.catalogue import Catalogue, draw_prompt, read_catalogue

PLAN = {
    "job_id": Column(pl.String, "Job: the finding and its number."),
    "finding": Column(pl.String, "Finding to make."),
    "index": Column(pl.Int64, "Number of the job within its finding, from 0."),
    "image_id": Column(pl.String, "Healthy image that it uses."),
    "shard": Column(pl.String, "Shard of that image."),
    "prompt": Column(pl.String, "Sentence that describes the finding, as in a report."),
    "class_prompt": Column(pl.String, "The finding's name, the prompt of configurations with `prompt: label`."),
    "is_spare": Column(pl.Boolean, "Whether it is a spare job, which replaces one that fails."),
    "trial": Column(pl.Boolean, "Whether every configuration edits it, not the chosen one alone."),
}
BOXES = {
    "job_id": Column(pl.String, "Job."),
    "image_id": Column(pl.String, "Healthy image that it uses."),
    "finding": Column(pl.String, "Finding."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    "zone": Column(pl.String, "Zone of the lung that the prompt names; empty without one."),
    "cx": Column(pl.Float64, "Centre from the lung's lateral edge; null for the heart.", "% of the lung's box"),
    "cy": Column(pl.Float64, "Centre from the lung's top; null for the heart.", "% of the lung's box"),
    "w": Column(pl.Float64, "Width, before clipping to the image; null for the heart.", "% of the lung's box"),
    "h": Column(pl.Float64, "Height, before clipping to the image; null for the heart.", "% of the lung's box"),
    **{
        name: Column(pl.Float64, f"{edge_name} edge of the box, half-open, not rounded.", "frame px")
        for name, edge_name in (("x1", "Left"), ("y1", "Upper"), ("x2", "Right"), ("y2", "Lower"))
    },
    "mass_centre": Column(pl.Float64, "Mass of the centre's prior in the allowed region; null for the heart."),
    "mass_size": Column(pl.Float64, "Mass of the prior of the size, or of the ratio, in the allowed region."),
    "tries": Column(pl.Int64, "Try that succeeded, from 1."),
    "ctr_from": Column(pl.Float64, "Cardiothoracic ratio of the image; null for a box in a lung.", "fraction"),
    "ctr_to": Column(pl.Float64, "Cardiothoracic ratio to reach; null for a box in a lung.", "fraction"),
}
"""One row for each box."""


NUMBERS_PER_BOX = 4
"""Random numbers of one try in one lung: centre x, centre y, width, height."""


def draw_numbers(seed: int, finding: str, index: int, tries: int) -> tuple[float, float, np.ndarray]:
    """Return uniform numbers in [0, 1): for the prompt, for the side, and (tries, 2 lungs, 4) for the boxes.

    Numbers of earlier tries do not depend on ``tries``.
    """
    generator = np.random.Generator(np.random.Philox(key=stable_hash(seed, finding, index)))
    numbers = generator.random(2 + tries * len(SIDES) * NUMBERS_PER_BOX)
    return float(numbers[0]), float(numbers[1]), numbers[2:].reshape(tries, len(SIDES), NUMBERS_PER_BOX)


log = logging.getLogger("cxr.semisyn.placement")


@dataclass(frozen=True)
class PlanOptions:
    """Settings of the plan.

    per_finding: images requested of each finding; None: as many as the largest of ``sizes`` needs or, with ``auto``, as
    the pool allows, at most ``default_most``. most_per_image: most jobs of one finding on one image; spare: fraction of
    additional jobs; samples: trial jobs of each finding; findings: names, in their order.
    """

    per_finding: int | None
    sizes: str | list[int]
    default_most: int
    most_per_image: int
    spare: float
    samples: int
    findings: list[str]
    seed: int

    @property
    def fixed(self) -> int | None:
        """Images of each finding that the settings request; None if the pool decides."""
        if self.per_finding or self.sizes == "auto":
            return self.per_finding
        return max(self.sizes) // len(self.findings)


def run_plan(*, healthy: str, plan: str, options: PlanOptions, findings_file: str = "") -> None:
    """Write the jobs of all findings to ``plan``. ``healthy``: the table of all healthy images.

    Raises UserError if the pool is empty or too small for the requested images.
    """
    pool = read_table(healthy)
    shards = dict(zip(pool["image_id"], pool["shard"], strict=True))
    if sentence := explain_overuse(len(shards), options):
        raise UserError(sentence)
    jobs = plan_jobs(shards, read_catalogue(findings_file), options)
    write_table(plan, pl.DataFrame(jobs, schema=schema(PLAN), orient="row"), PLAN)


def explain_overuse(num_healthy: int, options: PlanOptions) -> str:
    """Return why a pool of ``num_healthy`` images is too small for the requested images; "" if it is not."""
    allowed, quota = allowed_images(num_healthy, options.most_per_image, options.spare), options.fixed
    remedy = "give more healthy X-rays"
    if num_healthy:
        remedy += " or raise semisyn.placement.most_per_image"
    if not allowed:
        return (
            f"{count_phrase(num_healthy, 'X-ray is', 'X-rays are')} healthy, too few to put a finding into: {remedy}; "
            "results/semisyn/healthy/funnel.tsv tells which criterion excluded the others"
        )
    if quota is None or quota <= allowed:
        return ""
    uses = math.ceil(num_jobs(quota, options.spare) / num_healthy)
    key = "semisyn.dataset.per_finding" if options.per_finding else "semisyn.dataset.sizes"
    pool = count_phrase(num_healthy, "healthy X-ray", "healthy X-rays")
    return (
        f"{key} asks for {quota} images of each finding, so each of {pool} would be used up to {uses} times for each, "
        f"more than semisyn.placement.most_per_image {options.most_per_image}: ask for {allowed} or less, {remedy}"
    )


def num_jobs(per_finding: int, spare: float) -> int:
    """Return the number of jobs planned for a number of images of a finding, spare ones included."""
    return math.ceil(per_finding * (1 + spare))


def allowed_images(num_healthy: int, most_per_image: int, spare: float) -> int:
    """Return the largest number of images per finding that uses no healthy image more than ``most_per_image`` times."""
    most = num_healthy * most_per_image
    return next(images for images in range(most, -1, -1) if num_jobs(images, spare) <= most)


def images_requested(num_healthy: int, options: PlanOptions) -> int:
    """Return the images requested of each finding: those of the settings, or as many as the pool allows."""
    allowed = allowed_images(num_healthy, options.most_per_image, options.spare)
    return min(options.default_most, allowed) if options.fixed is None else options.fixed


def plan_jobs(shards: dict[str, str], catalogue: Catalogue, options: PlanOptions) -> list[tuple]:
    """Return one row of :data:`PLAN` for each job. ``shards``: {healthy image: its shard}."""
    quota = images_requested(len(shards), options) if shards else 0
    jobs, lacking = [], 0
    for name in options.findings:
        finding = catalogue.findings[name]
        for index, image in enumerate(assign_images(list(shards), name, num_jobs(quota, options.spare), options.seed)):
            prompt = draw_prompt(finding.prompts, draw_numbers(options.seed, name, index, 0)[0])
            lacking += any(re.search(pattern, prompt.lower()) for pattern in catalogue.parser.lacking)
            where = (job_id(name, index), name, index, image, shards[image])
            jobs.append((*where, prompt, finding.label, index >= quota, index < options.samples))
    if lacking:
        log.info("%d prompts name a lobe that the lung lacks: a zone takes its place", lacking)
    return jobs


def job_id(finding: str, index: int) -> str:
    """Return the name of a job."""
    return f"{finding}-{index:06d}"


def assign_images(images: list[str], finding: str, count: int, seed: int) -> list[str]:
    """Return the images of ``count`` jobs: all images in a random order, then in another order, and so on."""
    job_images: list[str] = []
    rounds = 0
    while len(job_images) < count:
        job_images += [
            image for _, image in sorted((stable_hash(seed, finding, rounds, image), image) for image in images)
        ]
        rounds += 1
    return job_images[:count]
