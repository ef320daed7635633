"""Synthetic X-rays of one fold: fitting priors to its training images, placing boxes, and painting lesions."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cxr.base.seeds import stable_hash
from cxr.base.vocabulary import HEART, LUNGS
from cxr.geometry.boxes import bounding_box
from cxr.semisyn.editing.edit_images import EditRefused, evaluate_edit
from cxr.semisyn.editing.engine import EditingEngine
from cxr.semisyn.editing.engine import Job as Edit
from cxr.semisyn.findings.catalogue import Finding, Prior, draw_prompt, read_catalogue
from cxr.semisyn.placement.plan_jobs import BOXES, Job, assign_images, draw_numbers, job_id, place_jobs
from cxr.semisyn.priors.fitting import fit_prior
from cxr.semisyn.priors.write_priors import MAX_OUTSIDE, MIN_BOXES, lung_percent, nearest_lung
from cxr.semisyn.priors.write_priors import Chest as Boxed
from semisyn_study import setup
from semisyn_study.films import Chest, Film

FINDINGS = ("opacity", "consolidation")
"""The painted findings. Both have the class opacity, as in the boxes of NIH's and RSNA's readers."""
CORNERS = ("x1", "y1", "x2", "y2")
SIDE, AT = (list(BOXES).index(name) for name in ("side", "x1"))
"""Columns of a placed box: its lung, and the first of its four corner coordinates."""


class Painted(NamedTuple):
    """A synthetic X-ray: its job, its source, the frame uint8 (512, 512), boxes {kind: (N, 4)} in frame pixels.

    conditioning: the placed boxes; visible: the tight boxes of the lesion in its lung.
    """

    job: str
    source: Film
    frame: np.ndarray
    boxes: dict[str, np.ndarray]


def samples_of(chests: Sequence[Chest]) -> dict[str, np.ndarray]:
    """Return the boxes of images as samples of a fit, {cx, cy, w, h: (N,)} in percent of the lung's box."""
    rows, far = [], MAX_OUTSIDE
    for chest in chests:
        organs = (bounding_box(mask) for mask in (chest.right, chest.left, chest.heart))
        measured_chest = Boxed(*organs, np.eye(2, 3), chest.film.frame.shape, True, chest.film.subject)
        for box in chest.film.boxes:
            side = nearest_lung(tuple(box), measured_chest)
            rows.append(lung_percent(tuple(box), getattr(measured_chest, side), side))
    numbers = np.array(rows, np.float64).reshape(-1, 4)
    near = ((numbers[:, :2] >= -far) & (numbers[:, :2] <= 100 + far)).all(axis=1)
    return dict(zip(("cx", "cy", "w", "h"), numbers[near].T, strict=True))


def fit_to_boxes(prior: Prior, chests: Sequence[Chest]) -> Prior:
    """Return the prior fitted to the boxes of ``chests`` as in the stage semisyn_priors; unchanged for too few
    boxes."""
    samples = samples_of(chests)
    return fit_prior(prior, samples)[0] if len(samples["cx"]) >= MIN_BOXES else prior


def make_synthetic(sources: Sequence[Chest], boxed: Sequence[Chest], fit: bool, count: int) -> list[Painted]:
    """Return the synthetic images of ``count`` jobs per finding, painted on the sources in turn.

    ``fit``: fit the priors to the boxes of ``boxed``, else use the paper's. Jobs without room and refused edits are
    omitted.
    """
    catalogue, films = read_catalogue(), []
    by_name = {chest.film.name: chest for chest in sources}
    for name in FINDINGS:
        finding = catalogue.findings[name]
        if fit:
            finding = replace(finding, prior=fit_to_boxes(finding.prior, boxed))
        jobs = [
            _job(name, index, by_name[image], finding.prompts)
            for index, image in enumerate(assign_images(sorted(by_name), name, count, setup.SEED))
        ]
        editor = setup.load_editor(frozenset(job.prompt for job in jobs))
        for job, rows in place_jobs(finding, jobs, catalogue, "repo", setup.SEED):
            film = _paint_job(job, rows, by_name[job.image_id], finding, editor) if rows else None
            if film:
                films.append(film)
    return films


def digest_of(films: Sequence[Painted]) -> str:
    """Return a digest of synthetic images: jobs, sources, frames and boxes."""
    digest = hashlib.blake2b(digest_size=16)
    for film in films:
        digest.update(f"{film.job} {film.source.name} {film.source.subject}".encode())
        digest.update(film.frame.tobytes())
        for kind in sorted(film.boxes):
            digest.update(film.boxes[kind].tobytes())
    return digest.hexdigest()


def _job(name: str, index: int, chest: Chest, prompts: dict[str, float]) -> Job:
    prompt = draw_prompt(prompts, draw_numbers(setup.SEED, name, index, 0)[0])
    organs = (np.array(bounding_box(mask), np.float64) for mask in (chest.right, chest.left, chest.heart))
    return Job(job_id(name, index), chest.film.name, index, prompt, (*organs, chest.picture))


def _paint_job(job: Job, rows: list[tuple], chest: Chest, finding: Finding, editor: EditingEngine) -> Painted | None:
    """Edit one image as the stage does; return None if the edit is refused."""
    boxes = np.array([row[AT : AT + 4] for row in rows])
    seed = stable_hash(setup.SEED, "edit", finding.name, job.index)
    sides = tuple(row[SIDE] for row in rows)
    edit = Edit(job.job_id, finding.name, job.prompt, boxes, sides, None, None, seed, setup.edit_config())
    masks = {LUNGS[0]: chest.right, LUNGS[1]: chest.left, HEART: chest.heart}
    edited = editor.edit(chest.film.frame.copy(), masks, edit)
    try:
        accepted = evaluate_edit(chest.film.frame, masks, edit, edited, setup.max_leak())
    except EditRefused:
        return None
    kinds = {
        kind: np.array([[row[name] for name in CORNERS] for row in accepted.boxes if row["kind"] == kind])
        for kind in ("conditioning", "visible")
    }
    return Painted(job.job_id, chest.film, accepted.image, kinds)
