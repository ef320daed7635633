"""Put findings into the healthy images of a shard, with one or several configurations, and refuse bad edits."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import polars as pl
import yaml

from cxr.base.columns import read_columns
from cxr.base.engines import Setup, engine_module
from cxr.base.hdf5 import FRAME_SIZE, Shards, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, read_tables, write_rows
from cxr.base.vocabulary import LUNGS
from cxr.base.workers import EngineFault, Fault, process_rows
from cxr.geometry.boxes import CORNERS, clip_boxes
from cxr.metrics import edits
from cxr.metrics.appearance import lung_midline
from cxr.semisyn.editing.engine import BoxTooSmall, EditedImage, Job
from cxr.semisyn.shared import BLURS, CHOSEN_CONFIG, DEFAULT_CONFIG, MEASURES, SELECTION, WARPED_FINDING

CUT = 3
"""Radius of the kernel of the Gaussian mask blur ``gauss``, in standard deviations."""


def soft_mask(boxes: np.ndarray, shape: tuple[int, int], blur: str) -> np.ndarray:
    """Return the weight of the edit at each pixel, float32 ``shape`` in 0..1: the maximum of the boxes' masks.
    ``blur``: name of (kind, r, exponent) in :data:`BLURS`. The kind ``none`` is 1 where a pixel's centre is in the box.
    ``gauss`` blurs this mask with a standard deviation of half the box's side divided by r. ``ggauss`` is the product
    over x and y of exp(-(|t| / (sqrt(2) deviation)) ** exponent), where t is the distance from the box's centre."""
    mask = np.zeros(shape, np.float32)
    for box in np.asarray(boxes, np.float64).reshape(-1, 4):
        np.maximum(mask, _box_mask(box, shape, *BLURS[blur]), out=mask)
    return mask


def _box_mask(box: np.ndarray, shape: tuple[int, int], kind: str, r: float, exponent: float) -> np.ndarray:
    if kind == "ggauss":
        bells = []
        for size, low, high in zip(shape, box[[1, 0]], box[[3, 2]], strict=True):
            deviation = max(1, (high - low) // 2) / r
            distance = np.abs(np.arange(size) + 0.5 - (low + high) / 2)
            bell = np.exp(-((distance / (np.sqrt(2) * deviation)) ** exponent))
            bells.append(bell / bell.max())
        return np.outer(*bells).astype(np.float32)
    x1, y1, x2, y2 = clip_boxes(box, *shape)[0]
    hard = np.zeros(shape, np.float32)
    hard[y1:y2, x1:x2] = 1
    if kind == "none" or not hard.any():
        return hard
    wide, tall = (max(1, (high - low) // 2) / r for low, high in ((x1, x2), (y1, y2)))
    # beyond the image the weight is 0
    sizes = tuple(2 * int(np.ceil(CUT * sigma)) + 1 for sigma in (wide, tall))
    soft = cv2.GaussianBlur(hard, sizes, wide, sigmaY=tall, borderType=cv2.BORDER_CONSTANT)
    return soft / soft.max()


VISIBLE = 4.0
"""Smallest change of a pixel that counts as visible, grey levels."""
MIN_CHANGED = 0.01
"""Smallest fraction of the boxes' area that must change visibly."""


class EditRefused(ValueError):
    """Error for an edit that is not good enough. ``reason``: code of the reason (docs/reference/reasons.md)."""

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


class AcceptedEdit(NamedTuple):
    """An edited image uint8 (512, 512), the mask of its lesion bool (512, 512), and the table rows of its boxes."""

    image: np.ndarray
    lesion: np.ndarray
    boxes: list[dict]


def evaluate_edit(
    source: np.ndarray, organs: dict[str, np.ndarray], job: Job, edited: EditedImage, max_leak: float
) -> AcceptedEdit:
    """Return the accepted edit of a job on a ``source`` uint8 (512, 512). Raise EditRefused for a wrong shape or
    NaN or infinite pixels, for too little change, or if a fraction above ``max_leak`` of the squared change is outside
    the boxes. The last check is left out for :data:`WARPED_FINDING` and for an ``extent`` below 1."""
    support = edited.support if edited.support is not None else job.mask > 0
    image = np.asarray(edited.image)
    if image.shape != source.shape or not np.isfinite(image).all():
        raise EditRefused("bad_picture", "the engine's image has a wrong shape, or NaN or infinite values")
    image = np.clip(np.rint(image), 0, 255).astype(np.uint8)
    if job.config["composite"] != "none" and job.config["extent"] >= 1:
        image = np.where(support, image, source)
    difference = edits.difference_image(source, image)
    inside = edits.mask_from_boxes(job.boxes, source.shape)
    changed_pixels = edits.visible_pixels(difference, VISIBLE)
    area = int((changed_pixels & inside).sum())
    if area < MIN_CHANGED * inside.sum():
        raise EditRefused("nothing_changed", f"{area} of {int(inside.sum())} pixels in the boxes changed visibly")
    leak = edits.leaked_fraction(difference, inside)
    if job.finding != WARPED_FINDING and job.config["extent"] == 1 and leak > max_leak:
        raise EditRefused("leaked", f"{leak:.2f} of the squared change lies outside the boxes")
    lesion = edited.lesion if edited.lesion is not None else changed_pixels & support
    measures = {
        "change_inside": edits.mean_change_inside(difference, inside),
        "change_outside_max": edits.largest_change_outside(difference, inside),
        "leak": leak,
        "area": area,
    }
    rows = []
    for number, (box, side) in enumerate(zip(job.boxes, job.sides, strict=True)):
        visible_box = box if job.finding == WARPED_FINDING else edits.tight_box(_lesion_of_side(lesion, organs, side))
        for kind, corners in (("conditioning", box), ("visible", visible_box)):
            if corners is not None:
                row = {"job_id": job.job_id, "number": number, "kind": kind, "side": side}
                rows.append(row | dict(zip(CORNERS, map(float, corners), strict=True)) | measures)
    return AcceptedEdit(image, lesion, rows)


def _lesion_of_side(lesion: np.ndarray, organs: dict[str, np.ndarray], side: str) -> np.ndarray:
    """Return a lesion mask without pixels in the lung opposite to ``side`` or beyond the midline between the lungs."""
    if not side:
        return lesion
    columns = np.arange(lesion.shape[1])[None] + 0.5
    middle = lung_midline(np.stack([organs[name] for name in LUNGS]))
    is_opposite = columns > middle if side == "right" else columns < middle
    return lesion & ~organs[LUNGS[1] if side == "right" else LUNGS[0]] & ~is_opposite


RESOURCE_FILES = ("columns/semisyn_editing.toml",)
BOXES = read_columns("semisyn_editing", "boxes") | MEASURES
UNITS = {"image": "grey levels"}


@dataclass(frozen=True, kw_only=True)
class EditingOptions:
    """Settings of an engine and its edits. choice: {finding: configuration}, or ``selection``; parts: number of cluster
    jobs that share the trial jobs, on which configurations are compared."""

    engine: str
    engine_settings: dict
    configs: dict[str, dict]
    choice: dict[str, str] | str
    max_leak: float
    seed: int
    findings: list[str]
    parts: int = 1


def run_shard(
    *, plan: str, placed: str | list[str], frames: str | list[str], organs: str | list[str], output: str | list[str],
    boxes: str | list[str], excluded: str | list[str], shard: str, options: EditingOptions, attrs: dict, threads: int,
    compute: dict | None = None, config: str = "", together: Sequence[str] = (), choice: str = "", **files: str,
) -> None:  # fmt: skip
    """Edit placed jobs with the configuration ``config``, or with several (``together``) that share work. With
    ``chosen``, edit the jobs of a ``shard`` for whose finding a configuration with this engine was chosen. With another
    name, edit the trial jobs, on which configurations are compared, of the part whose number is ``shard``. ``output``:
    HDF5 by job_id with ``image`` uint8 and ``lesion`` bool (512, 512), and the frame's ``to_original`` and
    ``original_shape``. With ``together``, ``output``, ``boxes`` and ``excluded`` are lists."""
    configs = list(together) or [config]
    paths = ([path] if isinstance(path, str) else path for path in (output, boxes, excluded))
    targets = dict(zip(configs, zip(*paths, strict=True), strict=True))
    tables = read_table(plan), read_tables(placed)
    names_by_config = {
        config: {finding: config_of(finding, config, options, choice) for finding in options.findings}
        for config in configs
    }
    per_config = {name: jobs_of(*tables, shard, name, options, choice) for name in configs}
    # the configurations of a job follow one another, so that a batch contains them together
    job_by_key = {
        (job_id, name): per_config[name][job_id]
        for job_id in sorted({job_id for jobs in per_config.values() for job_id in jobs})
        for name in configs
        if job_id in per_config[name]
    }
    texts = frozenset(text for _, job in job_by_key.values() for text in (job.prompt, job.config["negative"]))
    setup = Setup.of_job(files, compute, options.engine, engine_settings=options.engine_settings)
    editor = engine_module("cxr.semisyn.editing", options.engine).load(options, setup, texts)
    ledger = Ledger("semisyn_editing")
    rows: dict[str, list[dict]] = {name: [] for name in targets}

    def judge_edit(source: np.ndarray, masks: dict, job: Job, edited: EditedImage) -> tuple[tuple | None, Fault | None]:
        try:
            accepted = evaluate_edit(source, masks, job, edited, options.max_leak)
        except EditRefused as fault:
            refusal = fault.reason, str(fault)
            return None, EngineFault.from_error(fault, *refusal) if fault.reason == "bad_picture" else refusal
        parameters = json.dumps(edited.parameters, sort_keys=True, default=float)
        return (accepted, [row | {"parameters": parameters} for row in accepted.boxes]), None

    def edit_batch(batch: list[tuple]) -> list[tuple]:
        images, masks, jobs = map(list, zip(*batch, strict=True))
        copies = [image.copy() for image in images]
        try:
            if hasattr(editor, "batch"):
                edited_images = editor.edit_batch(copies, masks, jobs)
            else:
                edited_images = list(map(editor.edit, copies, masks, jobs))
        except BoxTooSmall as fault:
            if len(batch) == 1:
                return [(None, ("no_cell", str(fault)))]
            return [edit_batch([row])[0] for row in batch]
        return [judge_edit(*row) for row in zip(images, masks, jobs, edited_images, strict=True)]

    square = (FRAME_SIZE, FRAME_SIZE)
    empty = {"image": (square, np.uint8), "lesion": (square, bool)}
    empty |= {"to_original": ((2, 3), np.float64), "original_shape": ((2,), np.int32)}
    with ExitStack() as stack:
        frame_shards, organ_shards = (stack.enter_context(Shards(paths)) for paths in (frames, organs))
        # the same name for one configuration and for several together, so that their files are equal
        attrs |= {"stage": f"semisyn_editing_{options.engine}"}
        keywords = {"attrs": attrs, "units": UNITS, "pictures": ("image",), "empty": empty}
        writers = {name: stack.enter_context(ShardWriter(path, **keywords)) for name, (path, *_) in targets.items()}

        def read_inputs(key: tuple[str, str]) -> tuple[np.ndarray, dict[str, np.ndarray], Job]:
            image_id, job = job_by_key[key]
            # masks are made here, one by one: those of all jobs would not fit in memory
            masks = organ_shards.shard_of(image_id).masks(image_id)
            mask = soft_mask(job.boxes, (FRAME_SIZE, FRAME_SIZE), job.config["blur"])
            return frame_shards.get("image", image_id), masks, replace(job, mask=mask)

        how = {"batch": getattr(editor, "batch", None), "threads": threads, "compute": compute}
        for (job_id, name), (edited_image, box_rows) in process_rows(
            ledger, list(job_by_key), read_inputs, edit_batch, **how
        ):
            image_id, job = job_by_key[job_id, name]
            back = {field: frame_shards.get(field, image_id) for field in ("to_original", "original_shape")}
            writers[name].append(job_id, image=edited_image.image, lesion=edited_image.lesion, **back)
            rows[name] += [row | {"config": names_by_config[name][job.finding]} for row in box_rows]
    for name, (_, boxes_path, excluded_path) in targets.items():
        config_ledger = Ledger(ledger.stage)
        config_ledger.accepted = [job_id for job_id, config_name in ledger.accepted if config_name == name]
        excluded_rows = [row for row in ledger.excluded if row["image_id"][1] == name]
        config_ledger.excluded = [row | {"image_id": row["image_id"][0]} for row in excluded_rows]
        config_ledger.finish(excluded_path, per_config[name])
        write_rows(boxes_path, rows[name], BOXES)


def jobs_of(
    plan: pl.DataFrame, placed: pl.DataFrame, shard: str, config: str, options: EditingOptions, choice: str = ""
) -> dict[str, tuple[str, Job]]:
    """Return {job_id: (image_id, job without a mask)} of the placed jobs that ``options.engine`` edits. If ``config``
    is ``chosen``, they are the jobs of a ``shard``, otherwise the trial jobs of the part whose number is ``shard``."""
    names = {finding: config_of(finding, config, options, choice) for finding in options.findings}
    engine_findings = [finding for finding, name in names.items() if options.configs[name]["engine"] == options.engine]
    if config == CHOSEN_CONFIG:
        planned = plan.filter(pl.col("shard") == shard)
    else:
        planned = plan.filter("trial").sort("job_id")[int(shard) :: options.parts]
    planned = planned.filter(pl.col("finding").is_in(engine_findings))
    boxes = {job: part for (job,), part in placed.group_by("job_id", maintain_order=True)}
    jobs = {}
    for row in planned.sort("job_id").iter_rows(named=True):
        if (job_boxes := boxes.get(row["job_id"])) is not None:
            configuration = options.configs[names[row["finding"]]]
            prompt = row["prompt" if configuration["prompt"] == "phrase" else "class_prompt"]
            corners, sides, ratio = (
                job_boxes.select(CORNERS).to_numpy(),
                tuple(job_boxes["side"]),
                job_boxes["ctr_to"][0],
            )
            seed = stable_hash(options.seed, "edit", row["finding"], row["index"])
            job = Job(row["job_id"], row["finding"], prompt, corners, sides, ratio, None, seed, configuration)
            jobs[row["job_id"]] = row["image_id"], job
    return jobs


def config_of(finding: str, config: str, options: EditingOptions, choice: str = "") -> str:
    """Return the name of a finding's configuration: ``config`` or, for ``chosen``, the one in the file ``choice``."""
    if config != CHOSEN_CONFIG:
        return config
    if options.choice == SELECTION:
        return yaml.safe_load(Path(choice).read_text(encoding="utf-8"))[finding]["config"]
    return options.choice.get(finding, DEFAULT_CONFIG)
