"""Put the jobs' findings into the healthy images of a shard, under one or several configurations."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import yaml

from cxr.base.columns import Column, schema
from cxr.base.engines import Setup
from cxr.base.hdf5 import FRAME_SIZE, Shards, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, read_tables, write_table
from cxr.base.workers import EngineFault, Fault, process_singly_or_batched
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.editing.engine import BoxTooSmall, EditedImage, Job, load_engine
from cxr.semisyn.editing.outcome import EditRefused, evaluate_edit, soft_mask
from cxr.semisyn.shared import CHOSEN_CONFIG, DEFAULT_CONFIG, SELECTION

BOXES = {
    "job_id": Column(pl.String, "Job, and the row of its image in the shard."),
    "number": Column(pl.Int64, "Number of the box within the job, from 0."),
    "kind": Column(pl.String, "conditioning: as requested; visible: tight box of the visible change."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    **{
        name: Column(pl.Float64, f"{edge_name} edge, half-open.", "frame px")
        for name, edge_name in zip(CORNERS, ("Left", "Upper", "Right", "Lower"), strict=True)
    },
    "change_inside": Column(pl.Float64, "Mean absolute change inside the job's boxes.", "grey levels"),
    "change_outside_max": Column(pl.Float64, "Largest absolute change outside them.", "grey levels"),
    "leak": Column(pl.Float64, "Fraction of the squared change outside them."),
    "area": Column(pl.Int64, "Pixels inside them that changed visibly.", "px"),
    "config": Column(pl.String, "Configuration that made the image."),
    "drawn": Column(pl.String, "What the engine drew for the job, JSON."),
}
UNITS = {"image": "grey levels"}


class ConfigFiles(NamedTuple):
    """Files of one configuration: the edited images, their boxes, and the ledger."""

    output: str
    boxes: str
    excluded: str


@dataclass(frozen=True, kw_only=True)
class EditingOptions:
    """Settings of the edits of one engine.

    engine: its name; own: its settings; configs: {name: configuration}; choice: {finding: name}, or ``selection``;
    max_leak: see :func:`evaluate_edit`; parts: number of parts of the trial jobs.
    """

    engine: str
    own: dict
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
    """Edit one part of the placed trial jobs or, under ``chosen``, a shard's placed jobs that chose this engine.

    ``plan``: jobs; ``placed``: their boxes. For a part of the trial jobs, ``placed``, ``frames`` and ``organs`` list
    all shards. ``config``: the configuration, or ``together``: several ones, whose output paths are in that order; work
    that they share is done once, and the images are the same. ``choice``: the result of semisyn_selection, if the
    settings use it; ``files``: the engine's, and the user's ``findings_file``. Writes ``output`` (HDF5, key image_id =
    job: ``image`` uint8 (512, 512), ``lesion`` packed bool, and the frame's ``to_original`` and ``original_shape``),
    ``boxes`` (:data:`BOXES`) and the ledger ``excluded`` (bad_picture, nothing_changed, leaked, no_cell,
    engine_failure). Raises UserError for an unknown engine.
    """
    configs = list(together) or [config]
    paths = ([path] if isinstance(path, str) else path for path in (output, boxes, excluded))
    targets = {name: ConfigFiles(*target) for name, *target in zip(configs, *paths, strict=True)}
    tables = read_table(plan), read_tables(placed)
    per_config = {name: jobs_of(*tables, shard, name, options, choice) for name in configs}
    # the configurations of a job follow one another, so that a batch holds them together
    job_by_key = {
        (job_id, name): per_config[name][job_id]
        for job_id in sorted({job_id for jobs in per_config.values() for job_id in jobs})
        for name in configs
        if job_id in per_config[name]
    }
    texts = frozenset(text for _, job in job_by_key.values() for text in (job.prompt, job.config["negative"]))
    editor = load_engine(options.engine, options, Setup.for_engine(options.own, files, compute, options.engine), texts)
    ledger = Ledger("semisyn_editing")
    rows: dict[str, list[dict]] = {name: [] for name in targets}

    def judge_edit(source: np.ndarray, masks: dict, job: Job, edited: EditedImage) -> tuple[tuple | None, Fault | None]:
        try:
            done = evaluate_edit(source, masks, job, edited, options.max_leak)
        except EditRefused as fault:
            refusal = fault.reason, str(fault)
            return None, EngineFault.from_error(fault, *refusal) if fault.reason == "bad_picture" else refusal
        parameters = json.dumps(edited.parameters, sort_keys=True, default=float)
        return (done, [row | {"drawn": parameters} for row in done.boxes]), None

    def work(image: np.ndarray, masks: dict, job: Job):
        try:
            return judge_edit(image, masks, job, editor.edit(image.copy(), masks, job))
        except BoxTooSmall as fault:
            return None, ("no_cell", str(fault))

    def work_batch(batch: list[tuple]):
        images, masks, jobs = map(list, zip(*batch, strict=True))
        try:
            edited = editor.edit_batch([image.copy() for image in images], masks, jobs)
        except BoxTooSmall as fault:
            if len(batch) == 1:
                return [(None, ("no_cell", str(fault)))]
            return [work_batch([row])[0] for row in batch]
        return [judge_edit(*row) for row in zip(images, masks, jobs, edited, strict=True)]

    square = (FRAME_SIZE, FRAME_SIZE)
    empty = {"image": (square, np.uint8), "lesion": (square, bool)}
    empty |= {"to_original": ((2, 3), np.float64), "original_shape": ((2,), np.int32)}
    with ExitStack() as stack:
        frame_shards, organ_shards = (stack.enter_context(Shards(paths)) for paths in (frames, organs))
        # the name of the rule for one configuration, so that files of several equal those of one
        attrs |= {"stage": f"semisyn_editing_{options.engine}"}
        writer_keywords = {"attrs": attrs, "units": UNITS, "pictures": ("image",), "empty": empty}
        writers = {
            name: stack.enter_context(ShardWriter(target.output, **writer_keywords)) for name, target in targets.items()
        }

        def read_inputs(key: tuple[str, str]) -> tuple[np.ndarray, dict[str, np.ndarray], Job]:
            image_id, job = job_by_key[key]
            # masks are made here, one by one: those of all jobs would not fit in memory
            masks = organ_shards.shard_of(image_id).masks(image_id)
            mask = soft_mask(job.boxes, (FRAME_SIZE, FRAME_SIZE), job.config["blur"])
            return frame_shards.shard_of(image_id).get("image", image_id), masks, replace(job, mask=mask)

        how = {"engine": editor, "threads": threads, "compute": compute}
        for (job_id, name), (edited_image, box_rows) in process_singly_or_batched(
            ledger, list(job_by_key), read_inputs, work, work_batch, **how
        ):
            image_id, job = job_by_key[job_id, name]
            frame = frame_shards.shard_of(image_id)
            back = {field: frame.get(field, image_id) for field in ("to_original", "original_shape")}
            writers[name].append(job_id, image=edited_image.image, lesion=edited_image.lesion, **back)
            by = config_of(job.finding, name, options, choice)
            rows[name] += [row | {"config": by} for row in box_rows]
        for name, target in targets.items():
            _ledger_of_config(ledger, name).finish(target.excluded, per_config[name])
    for name, target in targets.items():
        write_table(target.boxes, pl.DataFrame(rows[name], schema=schema(BOXES)), BOXES)


def _ledger_of_config(ledger: Ledger, config: str) -> Ledger:
    """Return the part of a ledger of (job, configuration) for one configuration, keyed by job."""
    config_ledger = Ledger(ledger.stage)
    config_ledger.accepted = [job_id for job_id, name in ledger.accepted if name == config]
    rows = [row for row in ledger.excluded if row["image_id"][1] == config]
    config_ledger.excluded = [row | {"image_id": row["image_id"][0]} for row in rows]
    return config_ledger


def jobs_of(
    plan: pl.DataFrame,
    placed: pl.DataFrame,
    shard: str,
    config: str,
    options: EditingOptions,
    choice: str = "",
) -> dict[str, tuple[str, Job]]:
    """Return {job_id: (image_id, job)} of the placed jobs that the engine edits under a configuration, without masks.

    Under ``chosen`` they are the jobs of a cohort shard, else every n-th trial job of all shards.
    """
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
        if row["job_id"] in boxes:
            configuration = options.configs[names[row["finding"]]]
            jobs[row["job_id"]] = row["image_id"], _make_job(row, boxes[row["job_id"]], configuration, options.seed)
    return jobs


def config_of(finding: str, config: str, options: EditingOptions, choice: str = "") -> str:
    """Return the name of the configuration that edits a finding. ``choice``: the file of semisyn_selection."""
    if config != CHOSEN_CONFIG:
        return config
    if options.choice == SELECTION:
        return read_choice(choice)[finding]["config"]
    return options.choice.get(finding, DEFAULT_CONFIG)


@cache
def read_choice(path: str) -> dict[str, dict]:
    """Return the choice of semisyn_selection: {finding: its entry}."""
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def _make_job(row: Mapping, boxes: pl.DataFrame, config: dict, seed: int) -> Job:
    corners = boxes.select(CORNERS).to_numpy()
    ratio = boxes["ctr_to"][0]
    return Job(
        job_id=row["job_id"],
        finding=row["finding"],
        prompt=row["prompt"] if config["prompt"] == "phrase" else row["class_prompt"],
        boxes=corners,
        sides=tuple(boxes["side"]),
        ratio=None if ratio is None else float(ratio),
        mask=None,
        seed=stable_hash(seed, "edit", row["finding"], row["index"]),
        config=config,
    )
