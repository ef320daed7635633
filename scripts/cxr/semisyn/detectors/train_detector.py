"""Train a detector, write tables of its losses, scores and training images, and predict boxes with it."""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from itertools import pairwise
from math import ceil, isnan
from pathlib import Path

import numpy as np
import polars as pl
import torch

from cxr.base.atomic import atomic_folder
from cxr.base.columns import read_columns, schema
from cxr.base.engines import Setup, engine_module
from cxr.base.errors import UserError
from cxr.base.hdf5 import Shards
from cxr.base.jobs import log, progress
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_rows, write_table
from cxr.detection.grid import CONFIDENCE_DIGITS, PIXEL_DIGITS
from cxr.geometry.affine import boxes_to_frame, boxes_to_original
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.detectors.engine import DetectorsOptions, TrainingTask, Validation
from cxr.semisyn.detectors.pools import LazySample, shares_at, shuffle_boxes, take_patients
from cxr.semisyn.references import PREDICTIONS, Reference, framed_images, map_patients, read_reference
from cxr.semisyn.shared import PARTS, TRAIN_SUBSET, images_per_finding

RESOURCE_FILES = ("columns/semisyn_detectors.toml",)
UPDATES = read_columns("semisyn_detectors", "updates")
EPOCHS = read_columns("semisyn_detectors", "epochs")
POOLS = read_columns("semisyn_detectors", "pools")
POINTS = 10
"""Number of rows of the table of epochs, and of steps at which the engine ``lite`` is scored on validation images."""
SHARE_POINTS = 1000
"""Number of evenly spaced steps at which the pools' fractions of a batch are computed to estimate uses of images."""


class FrameShards(ExitStack):
    """The opened HDF5 files. frames: cohort images; by_reference: {reference: its images outside the cohort}."""

    def __init__(self, edited: Sequence[str], frames: Sequence[str], by_reference: Mapping[str, str]):
        super().__init__()
        self.edited, self.frames = (self.enter_context(Shards(paths)) for paths in (edited, frames))
        self.by_reference = {name: self.enter_context(Shards(path)) for name, path in by_reference.items()}


def _read_real(
    references: Sequence[dict], findings: Sequence[str], pictures: FrameShards, patients: str | Sequence[str]
) -> tuple[list[LazySample], Counter]:
    """Return the references' images that have a frame, with experts' boxes, and {reference: number of images without a
    frame}. A finding counts as labelled on all images of a reference if the reference has a box of it. Raise UserError
    if no image of a reference has a frame."""
    samples, lacking = [], Counter()
    for reference in (Reference(**settings) for settings in references):
        boxes, image_ids, _ = read_reference(reference, findings)
        shards = pictures.by_reference.get(reference.name, pictures.frames)
        framed_ids = framed_images(reference, image_ids, shards)
        lacking[reference.name] = len(image_ids) - len(framed_ids)
        patient = map_patients(framed_ids, patients)
        labelled_classes = tuple(sorted(findings.index(name) for name in set(boxes["finding"])))
        rows = {image: part for (image,), part in boxes.partition_by("image_id", as_dict=True).items()}
        for image in framed_ids:
            part, shard = rows.get(image, boxes.clear()), shards.shard_of(image)
            framed = boxes_to_frame(part.select(CORNERS).to_numpy(), shard.get("to_original", image)).tolist()
            image_boxes = tuple((findings.index(name), *box) for name, box in zip(part["finding"], framed, strict=True))
            read_frame = partial(shard.get, "image", image)
            samples.append(LazySample(image_boxes, labelled_classes, image, patient[image], read_frame))
    return samples, lacking


def _select_synthetic(
    images: pl.DataFrame, boxes: pl.DataFrame, options: DetectorsOptions, shards: Shards, size: int | str
) -> list[LazySample]:
    """Return the images of the subset ``train`` in a dataset of this ``size``, sorted by job_id. Every image counts as
    labelled for all findings. Raise UserError if the dataset is smaller than ``size``."""
    quota, count = images["requested"].max() or 0, len(options.findings)
    num_each = images_per_finding(size, quota, count)
    if size not in PARTS and num_each > quota:
        raise UserError(
            f"semisyn.detectors.runs: a run has synthetic: {size}, but the dataset has {quota * count} images: lower "
            f"synthetic, set it to one of {', '.join(PARTS)}, or raise semisyn.dataset.per_finding"
        )
    rows: dict[str, list[tuple]] = {}
    selected_boxes = boxes.filter((pl.col("kind") == options.kind) & (pl.col("target") == options.target))
    for job, finding, *box in selected_boxes.select("job_id", "finding", *CORNERS).iter_rows():
        rows.setdefault(job, []).append((options.findings.index(finding), *box))
    selected_images = images.filter(pl.col("subset") == TRAIN_SUBSET, pl.col("rank") < num_each).sort("job_id")
    labelled_classes = tuple(range(count))
    return [
        LazySample(tuple(rows.get(job, ())), labelled_classes, job, subject, partial(shards.get, "image", job))
        for job, subject in selected_images.select("job_id", "subject_id").iter_rows()
    ]


def read_pools(
    options: DetectorsOptions, pictures: FrameShards, images: pl.DataFrame | None, boxes: pl.DataFrame | None,
    patients: str | Sequence[str], seed: int,
) -> tuple[dict[str, list[LazySample]], Counter]:  # fmt: skip
    """Return {pool: images} of a run, and {reference: number of its images without a frame}. ``images``, ``boxes``: the
    dataset's tables. Raise UserError if a pool of the run is empty."""
    real, lacking = _read_real(options.references, options.findings, pictures, patients)
    pools = {"real": take_patients(real, options.real_share, seed)} if real else {}
    if options.synthetic:
        pools["synthetic"] = _select_synthetic(images, boxes, options, pictures.edited, options.synthetic)
    if options.extra:
        edited = _select_synthetic(images, boxes, options, pictures.edited, options.extra_size)
    if "unedited" in options.extra:
        sources = dict(images.select("job_id", "image_id").iter_rows())
        frame_readers = (partial(pictures.frames.get, "image", sources[sample.image_id]) for sample in edited)
        pairs = zip(edited, frame_readers, strict=True)
        pools["unedited"] = [replace(sample, boxes=(), read_frame=read_frame) for sample, read_frame in pairs]
    if "shuffled" in options.extra:
        pools["shuffled"] = shuffle_boxes(edited, seed)
    if empty := [name for name, pool in pools.items() if not pool]:
        raise UserError(
            f"semisyn.detectors.runs: the pool {empty[0]} of a run has no training image: raise "
            f"semisyn.dataset.per_finding, or remove the pool from the run"
        )
    return pools, lacking


def run(
    *, number: str, patients: list[str], model: str, updates: str, epochs: str, pools: str, options: DetectorsOptions,
    compute: dict, images: str | None = None, boxes: str | None = None, edited: Sequence[str] = (),
    frames: Sequence[str] = (), references: Sequence[str] = (), validation: Sequence[str] = (), roles: str = "",
    **extra_files: str,
) -> None:  # fmt: skip
    """Train the detector of a run with seed ``number``. Write the folder ``model`` and three tables. ``extra_files``:
    frames of references (``frames_<reference>``), and files of the engine. Runs with the same seed number draw the same
    random numbers. An interrupted training resumes with the same result. Raise UserError for an empty pool."""
    torch.set_num_threads(1)
    seed = stable_hash("detectors", options.seed, int(number)) % 2**32
    setup = Setup.of_job(extra_files, compute, engine_settings=options.engine_settings)
    engine = engine_module("cxr.semisyn.detectors", options.engine).load(setup)
    pictures = {name.removeprefix("frames_"): path for name, path in extra_files.items() if name.startswith("frames_")}
    unfinished = Path(model).with_name("unfinished")
    with FrameShards(edited, frames, pictures) as shards:
        image_table, box_table = (read_table(path) if path else None for path in (images, boxes))
        images_by_pool, lacking = read_pools(options, shards, image_table, box_table, patients, seed)
        num_updates = options.updates
        if options.budget == "epochs":  # each image is used equally often
            num_updates = max(1, ceil(options.epochs * sum(map(len, images_by_pool.values())) / engine.batch))
        # by default every image of all pools is equally likely
        shares = options.shares or {name: (len(pool), len(pool)) for name, pool in images_by_pool.items()}
        shares = {name: tuple(map(float, shares[name])) for name in images_by_pool if any(shares.get(name, ()))}
        validation_samples, _ = _read_real(options.validation, options.findings, shards, patients)
        validation_set = Validation(validation_samples) if validation_samples else None
        task = TrainingTask(
            images_by_pool, shares, tuple(options.findings), num_updates, options.epochs, seed,
            report_steps(num_updates, POINTS), validation_set,
        )  # fmt: skip
        for name, samples in images_by_pool.items():
            log.info("%s: %d images, %d boxes", name, len(samples), sum(len(sample.boxes) for sample in samples))
        for name, count in lacking.items():
            if count:
                log.warning("semisyn.references.%s: %d of its images have no frame and are not trained on", name, count)
        with atomic_folder(model) as folder:
            losses, step_scores = engine.train(task, folder, unfinished)
        scores = dict(step_scores)
        if validation_set and num_updates not in scores:  # an engine that does not score during training
            scores[num_updates] = validation_set.score(engine.load(Path(model)))
    rows = [(place, place * engine.batch, *loss) for place, loss in enumerate(losses, 1)]
    write_rows(updates, rows, UPDATES)
    rows, num_images = [], sum(map(len, images_by_pool.values()))
    for first, last in pairwise((0, *task.points)):
        percent = round(100 * scores[last], 6) if last in scores and not isnan(scores[last]) else None
        means = (sum(part) / (last - first) for part in zip(*losses[first:last], strict=True))
        rows.append((last * engine.batch / num_images, last, last * engine.batch, *means, percent))
    write_rows(epochs, rows, EPOCHS)
    write_table(pools, pools_table(task, engine.batch, options, lacking), POOLS)
    shutil.rmtree(unfinished, ignore_errors=True)


def report_steps(updates: int, points: int) -> tuple[int, ...]:
    """Return ``points`` evenly spaced steps that include the last one, or all steps if there are fewer."""
    return tuple(sorted({max(1, round(updates * number / points)) for number in range(1, points + 1)}))


def pools_table(task: TrainingTask, batch: int, options: DetectorsOptions, lacking: Mapping[str, int]) -> pl.DataFrame:
    """Return :data:`POOLS`: number and uses of each pool's images. ``lacking``: {reference: images without a frame}."""
    uses = dict.fromkeys(task.shares, 0.0)
    for step in range(SHARE_POINTS):
        for name, share in shares_at(task.shares, step / (SHARE_POINTS - 1)).items():
            uses[name] += share * task.updates * batch / SHARE_POINTS
    first, last = (shares_at(task.shares, progress) for progress in (0.0, 1.0))
    rows = []
    for name, samples in task.pools.items():
        reference_names, missing = (", ".join(options.real), sum(lacking.values())) if name == "real" else ("", 0)
        patients, boxes = len({sample.subject_id for sample in samples}), sum(len(sample.boxes) for sample in samples)
        shares = first.get(name, 0.0), last.get(name, 0.0), round(uses.get(name, 0.0) / len(samples), 6)
        rows.append((name, reference_names, len(samples), patients, boxes, missing, *shares))
    return pl.DataFrame(rows, schema=schema(POOLS), orient="row")


def run_predictions(
    *, model: str, annotations: str, frames: Sequence[str], output: str, engine: str, engine_settings: dict,
    findings: Sequence[str], reference: dict, compute: dict, roles: str = "", **engine_files: str,
) -> None:  # fmt: skip
    """Write a detector's boxes on all images of a reference that have a frame. Raise UserError if no image has one."""
    torch.set_num_threads(1)
    source = Reference(**reference)
    images = read_reference(source, findings).image_ids
    setup = Setup.of_job(engine_files, compute, engine, engine_settings=engine_settings)
    find = engine_module("cxr.semisyn.detectors", engine).load(setup).load(Path(model))
    rows = []
    with Shards(frames) as shards:
        framed_ids = framed_images(source, images, shards)
        if len(framed_ids) < len(images):
            log.warning(
                "semisyn.references.%s: %d of its %d images have no frame, and count as images without detections",
                source.name, len(images) - len(framed_ids), len(images),
            )  # fmt: skip
        for image in progress(framed_ids, len(framed_ids), "predictions"):
            shard = shards.shard_of(image)
            detections = find(shard.get("image", image))
            rows_columns = shard.get("original_shape", image)
            corners = boxes_to_original(np.asarray(detections.boxes, np.float64), shard.get("to_original", image))
            corners = np.clip(corners, 0, np.tile(rows_columns[::-1], 2)).round(PIXEL_DIGITS).tolist()
            for place, confidence, box in zip(detections.classes, detections.confidence, corners, strict=True):
                if box[0] < box[2] and box[1] < box[3]:
                    rows.append((image, findings[place], round(float(confidence), CONFIDENCE_DIGITS), *box))
    write_rows(output, rows, PREDICTIONS)
