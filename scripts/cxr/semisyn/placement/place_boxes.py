"""Place the boxes of all jobs whose image is in a shard. A job gets all its boxes or none."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from cxr.base.columns import schema
from cxr.base.hdf5 import FRAME_SIZE, Shard
from cxr.base.ledger import Ledger
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import SIDES
from cxr.geometry.affine import box_to_frame
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.findings.boxes import Chests, Places, draw_boxes, draw_hearts
from cxr.semisyn.findings.catalogue import Catalogue, Finding, choose_sides, parse_prompt, read_catalogue, zone_bounds
from cxr.semisyn.placement.plan_jobs import BOXES, draw_numbers

ORGANS = ("right", "left", "heart")
"""The boxes of a healthy image: columns ``right_x1`` to ``heart_y2``."""
BATCH = 4096
"""Jobs whose random numbers are in memory at once."""


TRIES = 6
"""Most tries to place a job."""
MIN_MASS = 1e-9
"""Smallest mass of a truncated prior."""
RATIO_STEP = 0.03
"""Smallest growth of the cardiothoracic ratio."""
UNSIDED = {"edema": "both"}
"""{finding: lungs of a prompt without a side}, for other findings one (the authors' code: one for all)."""


@dataclass(frozen=True)
class Job:
    """A job of the plan. chest: boxes (4,) of right lung, left lung, heart, and of the image within the frame."""

    job_id: str
    image_id: str
    index: int
    prompt: str
    chest: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def run_shard(
    *, plan: str, healthy: str, frames: str, priors: str, output: str, excluded: str, shard: str, bounds: str,
    seed: int, findings_file: str = "",
) -> None:  # fmt: skip
    """Write the boxes of the shard's jobs to ``output``, and the jobs without room to the ledger ``excluded``.

    ``plan``: jobs; ``healthy``: table of all healthy images with their organ boxes; ``frames``: shard of frames, for
    the extent of each image in its frame; ``priors``: priors.yaml; ``bounds``: see :func:`draw_boxes`.
    """
    catalogue = read_catalogue(findings_file, priors)
    jobs = read_table(plan).filter(pl.col("shard") == shard)
    chests = read_chests(read_table(healthy).filter(pl.col("image_id").is_in(jobs["image_id"].implode())), frames)
    ledger = Ledger("semisyn_placement")
    rows: list[tuple] = []
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
                    side, zone = parse_prompt(job.prompt, catalogue.parser)
                    description = f"side {side}, zone {zone or 'any'}"
                    ledger.exclude(job.job_id, chests[job.image_id][0], "no_room", description)
    table = pl.DataFrame(rows, schema=schema(BOXES), orient="row")
    write_table(output, table.sort("job_id", "side", descending=[False, True]), BOXES)
    ledger.finish(excluded, jobs["job_id"])


def read_chests(healthy: pl.DataFrame, frames: str) -> dict[str, tuple[str, tuple]]:
    """Return {image: (study, boxes of right lung, left lung, heart, image)}; boxes float64 (4,) in frame pixels."""
    chests = {}
    with Shard(frames) as frame_shard:
        for row in healthy.iter_rows(named=True):
            boxes = (np.array([row[f"{organ}_{corner}"] for corner in CORNERS], np.float64) for organ in ORGANS)
            rows, columns = frame_shard.get("original_shape", row["image_id"])
            affine = frame_shard.get("to_original", row["image_id"])
            picture = box_to_frame((0.0, 0.0, columns, rows), affine).clip(0.0, FRAME_SIZE)
            chests[row["image_id"]] = row["study_id"], (*boxes, picture)
    return chests


def place_jobs(
    finding: Finding, jobs: Sequence[Job], catalogue: Catalogue, bounds: str, seed: int
) -> Iterable[tuple[Job, list[tuple]]]:
    """Yield each job of a finding with its rows of :data:`BOXES`, none if there is no room for all its boxes."""
    draws = [draw_numbers(seed, finding.name, job.index, TRIES) for job in jobs]
    if finding.prior.placement == "lung":
        rows = _place_in_lungs(finding, jobs, draws, catalogue, bounds)
    else:
        rows = _place_hearts(finding, jobs, draws)
    return zip(jobs, rows, strict=True)


def _place_in_lungs(
    finding: Finding, jobs: Sequence[Job], draws: Sequence, catalogue: Catalogue, bounds: str
) -> list[list[tuple]]:
    placements = []
    unsided = UNSIDED.get(finding.name, "one")
    parsed_by_prompt = {prompt: parse_prompt(prompt, catalogue.parser) for prompt in {job.prompt for job in jobs}}
    for number, (job, (_, coin, _)) in enumerate(zip(jobs, draws, strict=True)):
        prompt_side, zone = parsed_by_prompt[job.prompt]
        for side in choose_sides(prompt_side, unsided, coin):
            placements.append((number, side, *zone_bounds(zone, side, catalogue)))
    numbers, sides, zones, zone_boxes = zip(*placements, strict=True)
    side_indices = np.array([SIDES.index(side) for side in sides])
    boxes = np.array([jobs[number].chest for number in numbers])
    lungs = boxes[np.arange(len(side_indices)), side_indices]
    places = Places(lungs, boxes[:, 3], boxes[:, 2], side_indices == 1, np.array(zone_boxes))
    uniforms = np.stack([draws[number][2][:, side] for number, side in zip(numbers, side_indices, strict=True)])
    placed = draw_boxes(finding.prior, places, uniforms, bounds=bounds, min_mass=MIN_MASS, heart_exclusion=True)
    rows: list[list[tuple]] = [[] for _ in jobs]
    lost = set()
    cells = zip(*(part.tolist() for part in (placed.percent, placed.boxes, placed.mass, placed.tries)), strict=True)
    for number, side, zone, (percent, box, mass, tries) in zip(numbers, sides, zones, cells, strict=True):
        job = jobs[number]
        rows[number].append(
            (job.job_id, job.image_id, finding.name, side, zone, *percent, *box, *mass, tries, None, None)
        )
        if not tries:
            lost.add(number)
    return [[] if number in lost else job_rows for number, job_rows in enumerate(rows)]


def _place_hearts(finding: Finding, jobs: Sequence[Job], draws: Sequence) -> list[list[tuple]]:
    boxes = np.array([job.chest for job in jobs])
    uniforms = np.stack([numbers[:, 0, 0] for _, _, numbers in draws])
    chests = Chests(*(boxes[:, part] for part in range(4)))
    hearts = draw_hearts(finding.prior, chests, uniforms, step=RATIO_STEP, min_mass=MIN_MASS)
    cells = zip(*(part.tolist() for part in (hearts.boxes, hearts.mass, hearts.tries, hearts.ratios)), strict=True)
    none = (None,) * 4
    return [
        [(job.job_id, job.image_id, finding.name, "", "", *none, *box, None, mass, tries, *ratios)] if tries else []
        for job, (box, mass, tries, ratios) in zip(jobs, cells, strict=True)
    ]
