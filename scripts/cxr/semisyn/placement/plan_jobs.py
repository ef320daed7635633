"""Plan the jobs (images to make) with a healthy image and a prompt each. Then place a job's boxes, or exclude it."""

import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.errors import UserError
from cxr.base.hdf5 import FRAME_SIZE, Shard
from cxr.base.ledger import Ledger
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_rows, write_table
from cxr.base.vocabulary import SIDES
from cxr.geometry.affine import box_to_frame
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.findings import catalogue as findings
from cxr.semisyn.findings.boxes import Chests, Places, draw_boxes, draw_hearts
from cxr.semisyn.placement.quota import PlanOptions, explain_overuse, images_requested, num_jobs

RESOURCE_FILES = ("columns/semisyn_placement.toml",)
PLAN = read_columns("semisyn_placement", "plan")
BOXES = read_columns("semisyn_placement", "boxes")
"""Columns of the table of boxes, which has one row for each box."""
NUMBERS_PER_BOX = 4
"""Random numbers of one try in one lung: centre x, centre y, width, height."""


def draw_numbers(seed: int, finding: str, index: int, tries: int) -> tuple[float, float, np.ndarray]:
    """Return a job's random numbers in [0, 1): one for the prompt, one for the side, and (tries, 2 lungs, 4) for the
    boxes. A larger number of ``tries`` only adds numbers."""
    generator = np.random.Generator(np.random.Philox(key=stable_hash(seed, finding, index)))
    numbers = generator.random(2 + tries * len(SIDES) * NUMBERS_PER_BOX)
    return float(numbers[0]), float(numbers[1]), numbers[2:].reshape(tries, len(SIDES), NUMBERS_PER_BOX)


log = logging.getLogger("cxr.semisyn.placement")


def run_plan(*, healthy: str, plan: str, options: PlanOptions, findings_file: str = "") -> None:
    """Write the jobs of all findings to ``plan``. Raise UserError if there are too few healthy images."""
    shards = dict(read_table(healthy).select("image_id", "shard").iter_rows())
    if sentence := explain_overuse(len(shards), options):
        raise UserError(sentence)
    write_rows(plan, plan_jobs(shards, findings.read_catalogue(findings_file), options), PLAN)


def plan_jobs(shards: dict[str, str], catalogue: findings.Catalogue, options: PlanOptions) -> list[tuple]:
    """Return a row of :data:`PLAN` for each job (image to make). ``shards``: {healthy image: its shard}."""
    quota = images_requested(len(shards), options) if shards else 0
    jobs, lacking = [], 0
    for name in options.findings:
        finding = catalogue.findings[name]
        for index, image in enumerate(assign_images(list(shards), name, num_jobs(quota, options.spare), options.seed)):
            prompt = findings.draw_prompt(finding.prompts, draw_numbers(options.seed, name, index, 0)[0])
            lacking += any(re.search(pattern, prompt.lower()) for pattern in catalogue.parser["lacking"])
            where = (job_id(name, index), name, index, image, shards[image])
            jobs.append((*where, prompt, finding.label, index >= quota, index < options.samples))
    if lacking:
        log.info("%d prompts name a lobe that the lung lacks: a zone takes its place", lacking)
    return jobs


def job_id(finding: str, index: int) -> str:
    """Return the name of a job, such as edema-000012."""
    return f"{finding}-{index:06d}"


def assign_images(images: list[str], finding: str, count: int, seed: int) -> list[str]:
    """Return the images of ``count`` jobs: all images in a random order, then in another order, and so on."""
    job_images: list[str] = []
    for number in range(math.ceil(count / len(images)) if images else 0):
        job_images += sorted(images, key=lambda image: (stable_hash(seed, finding, number, image), image))
    return job_images[:count]


ORGANS = ("right", "left", "heart")
"""Organs with a box in the table of healthy images (columns ``right_x1`` to ``heart_y2``)."""
BATCH = 4096
"""Maximum number of jobs whose random numbers are in memory at once."""
TRIES = 6
"""Maximum number of tries to place a job."""
MIN_MASS = 1e-9
"""Smallest probability that a prior must give to the allowed range for a try to succeed."""
RATIO_STEP = 0.03
"""Smallest increase of the cardiothoracic ratio, a fraction."""
UNSIDED = {"edema": "both"}
"""{finding: lungs that get a box if the prompt names no side}. Other findings get one; in the authors' code, both."""


@dataclass(frozen=True)
class Job:
    """An image to make, from the plan. chest: boxes (4,) of right lung, left lung, heart and image, in frame pixels."""

    job_id: str
    image_id: str
    index: int
    prompt: str
    chest: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def run_shard(
    *, plan: str, healthy: str, frames: str, priors: str, output: str, excluded: str, shard: str, bounds: str,
    seed: int, findings_file: str = "",
) -> None:  # fmt: skip
    """Write the boxes of the shard's jobs to ``output``, and the jobs without room to the table ``excluded``.
    ``healthy``: all healthy images, with organ boxes; ``frames``: HDF5 file; ``bounds``: setting placement.bounds."""
    catalogue = findings.read_catalogue(findings_file, priors)
    jobs = read_table(plan).filter(pl.col("shard") == shard)
    images = read_table(healthy).filter(pl.col("image_id").is_in(jobs["image_id"].implode()))
    chests, ledger, rows = {}, Ledger("semisyn_placement"), []
    with Shard(frames) as frame_shard:
        for image in images.iter_rows(named=True):
            boxes = (np.array([image[f"{organ}_{corner}"] for corner in CORNERS], np.float64) for organ in ORGANS)
            height, width = frame_shard.get("original_shape", image["image_id"])
            affine = frame_shard.get("to_original", image["image_id"])
            picture = box_to_frame((0.0, 0.0, width, height), affine).clip(0.0, FRAME_SIZE)
            chests[image["image_id"]] = image["study_id"], (*boxes, picture)
    for (name,), part in sorted(jobs.group_by("finding")):
        finding_jobs = [
            Job(job, image, index, prompt, chests[image][1])
            for job, image, index, prompt in part.select("job_id", "image_id", "index", "prompt").iter_rows()
        ]
        for first in range(0, len(finding_jobs), BATCH):
            batch = finding_jobs[first : first + BATCH]
            for job, boxes in place_jobs(catalogue.findings[name], batch, catalogue, bounds, seed):
                if boxes:
                    ledger.accept(job.job_id)
                    rows += boxes
                else:
                    side, zone = findings.parse_prompt(job.prompt, catalogue.parser)
                    description = f"side {side}, zone {zone or 'any'}"
                    ledger.exclude(job.job_id, chests[job.image_id][0], "no_room", description)
    table = pl.DataFrame(rows, schema=schema(BOXES), orient="row")
    write_table(output, table.sort("job_id", "side", descending=[False, True]), BOXES)
    ledger.finish(excluded, jobs["job_id"])


def place_jobs(
    finding: findings.Finding, jobs: Sequence[Job], catalogue: findings.Catalogue, bounds: str, seed: int
) -> Iterable[tuple[Job, list[tuple]]]:
    """Yield (job, its rows of :data:`BOXES`) for jobs of a finding. There are no rows if any box has no room."""
    draws = [draw_numbers(seed, finding.name, job.index, TRIES) for job in jobs]
    if finding.prior.placement == "lung":
        return zip(jobs, _place_in_lungs(finding, jobs, draws, catalogue, bounds), strict=True)
    chests = Chests(*np.moveaxis(np.array([job.chest for job in jobs]), 1, 0))
    uniforms, rows = np.stack([numbers[:, 0, 0] for _, _, numbers in draws]), []
    hearts = draw_hearts(finding.prior, chests, uniforms, step=RATIO_STEP, min_mass=MIN_MASS)
    for job, ratios, box, mass, tries in zip(jobs, *(part.tolist() for part in hearts), strict=True):
        head = job.job_id, job.image_id, finding.name, "", "", None, None, None, None
        rows.append([(*head, *box, None, mass, tries, *ratios)] if tries else [])
    return zip(jobs, rows, strict=True)


def _place_in_lungs(
    finding: findings.Finding, jobs: Sequence[Job], draws: Sequence, catalogue: findings.Catalogue, bounds: str
) -> Iterable[list[tuple]]:
    placements = []
    for number, (job, (_, coin, _)) in enumerate(zip(jobs, draws, strict=True)):
        prompt_side, zone = findings.parse_prompt(job.prompt, catalogue.parser)
        for side in findings.choose_sides(prompt_side, UNSIDED.get(finding.name, "one"), coin):
            placements.append((number, side, *findings.zone_bounds(zone, side, catalogue)))
    numbers, sides, _, zone_boxes = zip(*placements, strict=True)
    side_indices = np.array([SIDES.index(side) for side in sides])
    boxes = np.array([jobs[number].chest for number in numbers])
    lungs = boxes[np.arange(len(side_indices)), side_indices]
    places = Places(lungs, boxes[:, 3], boxes[:, 2], side_indices == 1, np.array(zone_boxes))
    uniforms = np.stack([draws[number][2][:, side] for number, side in zip(numbers, side_indices, strict=True)])
    placed = draw_boxes(finding.prior, places, uniforms, bounds=bounds, min_mass=MIN_MASS, heart_exclusion=True)
    rows: list[list[tuple]] = [[] for _ in jobs]
    cells = zip(*(part.tolist() for part in placed), strict=True)
    for (number, side, zone, _), (percent, box, mass, tries) in zip(placements, cells, strict=True):
        head = jobs[number].job_id, jobs[number].image_id, finding.name, side, zone
        rows[number].append((*head, *percent, *box, *mass, tries, None, None))
    lost_jobs = {numbers[at] for at in np.flatnonzero(placed.tries == 0)}
    return ([] if number in lost_jobs else job_rows for number, job_rows in enumerate(rows))
