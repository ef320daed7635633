"""Put the jobs' findings into the healthy images of a shard, under one or several configurations."""

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from cxr.base.columns import Column, edge_columns
from cxr.base.engines import Setup
from cxr.base.hdf5 import FRAME_SIZE, Shards, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, read_tables, write_rows
from cxr.base.workers import EngineFault, Fault, process_singly_or_batched
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.editing.engine import BoxTooSmall, EditedImage, Job, load_engine
from cxr.semisyn.editing.outcome import EditRefused, evaluate_edit, soft_mask
from cxr.semisyn.shared import CHOSEN_CONFIG, DEFAULT_CONFIG, MEASURES, SELECTION

BOXES = {
    "job_id": Column(pl.String, "Job, and the row of its image in the shard."),
    "number": Column(pl.Int64, "Number of the box within the job, from 0."),
    "kind": Column(pl.String, "conditioning: as requested; visible: tight box of the visible change."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    **edge_columns(", half-open", "frame px"),
    **MEASURES,
}
UNITS = {"image": "grey levels"}


@dataclass(frozen=True, kw_only=True)
class EditingOptions:
    """Settings of an engine and its edits. choice: {finding: configuration}, or ``selection``; parts: of trial jobs."""

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
    ``config``: the configuration, or ``together``: several, whose output paths are in that order; their shared work is
    done once. ``output``: HDF5 of job_id: ``image`` uint8 and ``lesion`` bool (512, 512), and the frame's
    ``to_original`` and ``original_shape``. Raises UserError for an unknown engine."""
    configs = list(together) or [config]
    paths = ([path] if isinstance(path, str) else path for path in (output, boxes, excluded))
    targets = dict(zip(configs, zip(*paths, strict=True), strict=True))
    tables = read_table(plan), read_tables(placed)
    names_by_config = {
        config: {finding: config_of(finding, config, options, choice) for finding in options.findings}
        for config in configs
    }
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
        # the name of the rule for one configuration, so that files of several equal those of one
        attrs |= {"stage": f"semisyn_editing_{options.engine}"}
        keywords = {"attrs": attrs, "units": UNITS, "pictures": ("image",), "empty": empty}
        writers = {name: stack.enter_context(ShardWriter(path, **keywords)) for name, (path, *_) in targets.items()}

        def read_inputs(key: tuple[str, str]) -> tuple[np.ndarray, dict[str, np.ndarray], Job]:
            image_id, job = job_by_key[key]
            # masks are made here, one by one: those of all jobs would not fit in memory
            masks = organ_shards.shard_of(image_id).masks(image_id)
            mask = soft_mask(job.boxes, (FRAME_SIZE, FRAME_SIZE), job.config["blur"])
            return frame_shards.get("image", image_id), masks, replace(job, mask=mask)

        how = {"engine": editor, "threads": threads, "compute": compute}
        for (job_id, name), (edited_image, box_rows) in process_singly_or_batched(
            ledger, list(job_by_key), read_inputs, lambda *row: edit_batch([row])[0], edit_batch, **how
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
    """Return {job_id: (image_id, job)}: of a shard under ``chosen``, else every n-th trial job; without masks."""
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
            configuration, job_boxes = options.configs[names[row["finding"]]], boxes[row["job_id"]]
            jobs[row["job_id"]] = (
                row["image_id"],
                Job(
                    job_id=row["job_id"],
                    finding=row["finding"],
                    prompt=row["prompt"] if configuration["prompt"] == "phrase" else row["class_prompt"],
                    boxes=job_boxes.select(CORNERS).to_numpy(),
                    sides=tuple(job_boxes["side"]),
                    ratio=job_boxes["ctr_to"][0],
                    mask=None,
                    seed=stable_hash(options.seed, "edit", row["finding"], row["index"]),
                    config=configuration,
                ),
            )
    return jobs


def config_of(finding: str, config: str, options: EditingOptions, choice: str = "") -> str:
    """Return the name of the configuration that edits a finding. ``choice``: the file of semisyn_selection."""
    if config != CHOSEN_CONFIG:
        return config
    if options.choice == SELECTION:
        return yaml.safe_load(Path(choice).read_text(encoding="utf-8"))[finding]["config"]
    return options.choice.get(finding, DEFAULT_CONFIG)
