"""Planning the jobs: each uses a healthy image and a prompt; an image is used at most once more than another."""

import logging
import math
import re
from dataclasses import dataclass

import polars as pl

from cxr.base.columns import schema
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.semisyn.findings.catalogue import Catalogue, read_catalogue
from cxr.semisyn.findings.phrases import draw_prompt
from cxr.semisyn.placement.columns import PLAN
from cxr.semisyn.placement.draws import job_draws

log = logging.getLogger("cxr.semisyn.placement")


@dataclass(frozen=True)
class PlanOptions:
    """Settings of the plan. per_finding: images wanted of each finding; spare: share planned beyond them; samples:
    trial jobs of each finding; findings: names, in their order; seed.
    """

    per_finding: int
    spare: float
    samples: int
    findings: list[str]
    seed: int


def run_plan(*, healthy: str, plan: str, options: PlanOptions, findings_file: str = "") -> None:
    """Write the jobs of all findings to ``plan``. ``healthy``: the table of all healthy images."""
    pool = read_table(healthy)
    shards = dict(zip(pool["image_id"], pool["shard"], strict=True))
    if not shards:
        log.warning("there is no healthy image: no job is planned")
    jobs = plan_jobs(shards, read_catalogue(findings_file), options)
    write_table(plan, pl.DataFrame(jobs, schema=schema(PLAN), orient="row"), PLAN)


def plan_jobs(shards: dict[str, str], catalogue: Catalogue, options: PlanOptions) -> list[tuple]:
    """Return one row of :data:`PLAN` for each job. ``shards``: {healthy image: its shard}."""
    count = math.ceil(options.per_finding * (1 + options.spare)) if shards else 0
    jobs, lacking = [], 0
    for name in options.findings:
        finding = catalogue.findings[name]
        for index, image in enumerate(images_of(list(shards), name, count, options.seed)):
            prompt = draw_prompt(finding.prompts, job_draws(options.seed, name, index, 0)[0])
            lacking += any(re.search(pattern, prompt.lower()) for pattern in catalogue.parser.lacking)
            trial = index < options.samples
            jobs.append((job_id(name, index), name, index, image, shards[image], prompt, finding.label, trial))
    if lacking:
        log.info("%d prompts name a lobe that the lung lacks: a zone takes its place", lacking)
    return jobs


def job_id(finding: str, index: int) -> str:
    """Return the name of a job."""
    return f"{finding}-{index:06d}"


def images_of(images: list[str], finding: str, count: int, seed: int) -> list[str]:
    """Return the image of each of ``count`` jobs: all images in one order, then all in another, and so on."""
    found: list[str] = []
    rounds = 0
    while len(found) < count:
        found += [image for _, image in sorted((stable_hash(seed, finding, rounds, image), image) for image in images)]
        rounds += 1
    return found[:count]
