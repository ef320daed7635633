"""Train one detector, and write its losses, its validation scores and the composition of its training images."""

import shutil
from collections.abc import Mapping, Sequence
from math import ceil, isnan
from pathlib import Path

import polars as pl
import torch

from cxr.base.atomic import atomic_folder
from cxr.base.columns import Column, Columns, schema
from cxr.base.engines import Setup
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.semisyn.detectors.engine import DetectorsOptions, TrainingTask, load_engine
from cxr.semisyn.detectors.pools import LazySample, even_shares, shares_at
from cxr.semisyn.detectors.training_images import open_frames, read_pools, read_validation

UPDATES: Columns = {
    "update": Column(pl.Int64, "Number of the step, from 1."),
    "images": Column(pl.Int64, "Training images used until then, repetitions included."),
    "loss_class": Column(pl.Float64, "Class loss on the batch."),
    "loss_box": Column(pl.Float64, "Weighted box loss on the batch; the training minimises the sum of both."),
}
EPOCHS: Columns = {
    "epoch": Column(pl.Float64, "Mean number of times that an image was used until then."),
    "updates": Column(pl.Int64, "Steps until then."),
    "images": Column(pl.Int64, "Training images used until then, repetitions included."),
    "loss_class": Column(pl.Float64, "Mean class loss of the steps since the previous row."),
    "loss_box": Column(pl.Float64, "Mean box loss of the same steps."),
    "map1070_validation": Column(
        pl.Float64, "Mean AP on the references with the role val; null if there is none or it was not measured.", "%"
    ),
}
POOLS: Columns = {
    "pool": Column(pl.String, "real, synthetic, shuffled (boxes of other jobs) or unedited (sources, without a box)."),
    "reference": Column(pl.String, "Reference of real images; empty for the others."),
    "images": Column(pl.Int64, "Images."),
    "patients": Column(pl.Int64, "Their patients."),
    "boxes": Column(pl.Int64, "Boxes."),
    "without_frame": Column(pl.Int64, "Images of the reference without a frame; they are excluded."),
    "share_first": Column(pl.Float64, "Fraction of a batch from this pool at the first step."),
    "share_last": Column(pl.Float64, "Fraction at the last step."),
    "epochs": Column(pl.Float64, "Mean number of times that an image of the pool is used."),
}


POINTS = 10
"""Rows of the table of epochs, at which the engine lite is scored on the validation images."""
SHARE_POINTS = 1000
"""Points of the training at which the changing shares are summed for the table of pools."""
NO_IMAGES = dict.fromkeys(("job_id", "image_id", "subject_id", "subset"), pl.String)
NO_IMAGES |= {"rank": pl.Int64, "asked": pl.Int64}
NO_BOXES = dict.fromkeys(("job_id", "finding", "kind", "target"), pl.String)


def run(
    *, number: str, patients: list[str], model: str, updates: str, epochs: str, pools: str, options: DetectorsOptions,
    compute: dict, images: str | None = None, boxes: str | None = None, edited: Sequence[str] = (),
    frames: Sequence[str] = (), references: Sequence[str] = (), validation: Sequence[str] = (), roles: str = "",
    **extra_files: str,
) -> None:  # fmt: skip
    """Train a detector of a run with one of its seeds; write the folder ``model`` and three tables.

    ``number``: of the seed; ``images``, ``boxes``, ``edited``: the dataset's tables and edited shards, if the run has
    synthetic images; ``frames``: the cohort's; ``extra_files``: ``frames_<reference>``, frames of images outside the
    cohort, and the engine's files; ``patients``: tables with image_id and subject_id; ``references``, ``validation``,
    ``roles``: unused. Runs with one seed number share their draws. An interrupted training resumes with the same
    result. Raises UserError for a run without images.
    """
    torch.set_num_threads(1)
    seed = stable_hash("detectors", options.seed, int(number)) % 2**32
    engine = load_engine(options.engine, Setup.for_engine(options.own, extra_files, compute))
    pictures = {name.removeprefix("frames_"): path for name, path in extra_files.items() if name.startswith("frames_")}
    unfinished = Path(model).with_name("unfinished")
    with open_frames(edited, frames, pictures) as shards:
        image_table = read_table(images) if images else pl.DataFrame(schema=NO_IMAGES)
        box_table = read_table(boxes) if boxes else pl.DataFrame(schema=NO_BOXES)
        films_by_pool, lacking = read_pools(options, shards, image_table, box_table, patients, seed)
        num_updates = options.updates
        if options.budget == "epochs":  # each image is used equally often
            num_updates = max(1, ceil(options.epochs * sum(map(len, films_by_pool.values())) / engine.batch))
        validation_set = read_validation(options, shards, patients)
        task = TrainingTask(
            films_by_pool, shares_of(options, films_by_pool), tuple(options.findings), num_updates, options.epochs,
            seed, report_steps(num_updates, POINTS), validation_set,
        )  # fmt: skip
        for name, samples in films_by_pool.items():
            log.info("%s: %d images, %d boxes", name, len(samples), sum(len(sample.boxes) for sample in samples))
        for name, count in lacking.items():
            if count:
                log.warning("semisyn.references.%s: %d of its images have no frame and are not learnt", name, count)
        with atomic_folder(model) as folder:
            trained = engine.train(task, folder, unfinished)
        scores = dict(trained.scores)
        if validation_set and num_updates not in scores:  # an engine that does not score during training
            scores[num_updates] = validation_set.score(engine.load(Path(model)))
    rows = [(place, place * engine.batch, *loss) for place, loss in enumerate(trained.losses, 1)]
    write_table(updates, pl.DataFrame(rows, schema=schema(UPDATES), orient="row"), UPDATES)
    write_table(epochs, epochs_table(task, engine.batch, trained.losses, scores), EPOCHS)
    write_table(pools, pools_table(task, engine.batch, options, lacking), POOLS)
    shutil.rmtree(unfinished, ignore_errors=True)


def shares_of(options: DetectorsOptions, pools: Mapping[str, Sequence[LazySample]]) -> dict[str, tuple[float, float]]:
    """Return the shares at the first and the last step: those of the run, or else proportional to the pool sizes."""
    if not options.shares:
        return even_shares(pools)
    run_shares = {name: tuple(map(float, options.shares[name])) for name in pools if any(options.shares.get(name, ()))}
    if not run_shares:
        raise UserError(
            f"semisyn.detectors.runs: shares names none of the pools {', '.join(pools)}: give one of them a share"
        )
    return run_shares


def report_steps(updates: int, points: int) -> tuple[int, ...]:
    """Return ``points`` evenly spaced steps, fewer if there are fewer steps; the last step is among them."""
    return tuple(sorted({max(1, round(updates * number / points)) for number in range(1, points + 1)}))


def epochs_table(
    task: TrainingTask, batch: int, losses: Sequence[tuple[float, float]], scores: Mapping[int, float]
) -> pl.DataFrame:
    """Return :data:`EPOCHS`: a row for each point, with the mean losses since the previous one."""
    images, rows, first = sum(map(len, task.pools.values())), [], 0
    for last in task.points:
        score = scores.get(last)
        percent = None if score is None or isnan(score) else round(100 * score, 6)
        means = (sum(part) / (last - first) for part in zip(*losses[first:last], strict=True))
        rows.append((last * batch / images, last, last * batch, *means, percent))
        first = last
    return pl.DataFrame(rows, schema=schema(EPOCHS), orient="row")


def pools_table(task: TrainingTask, batch: int, options: DetectorsOptions, lacking: Mapping[str, int]) -> pl.DataFrame:
    """Return :data:`POOLS`: the images of each pool and how often they were used."""
    num_shown_by_pool = dict.fromkeys(task.shares, 0.0)
    for step in range(SHARE_POINTS):
        for name, share in shares_at(task.shares, step / (SHARE_POINTS - 1)).items():
            num_shown_by_pool[name] += share * task.updates * batch / SHARE_POINTS
    first, last = (shares_at(task.shares, progress) for progress in (0.0, 1.0))
    rows = []
    for name, samples in task.pools.items():
        reference_names = ", ".join(options.real) if name == "real" else ""
        patients, boxes = len({sample.subject_id for sample in samples}), sum(len(sample.boxes) for sample in samples)
        missing = sum(lacking.values()) if name == "real" else 0
        times = round(num_shown_by_pool.get(name, 0.0) / len(samples), 6)
        counts = len(samples), patients, boxes, missing
        rows.append((name, reference_names, *counts, first.get(name, 0.0), last.get(name, 0.0), times))
    return pl.DataFrame(rows, schema=schema(POOLS), orient="row")
