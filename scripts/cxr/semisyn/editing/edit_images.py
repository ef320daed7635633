"""Put the jobs' findings into the healthy images of a shard, under one or several configurations."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
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
from cxr.base.tables import read_table, write_table
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
STAGE = "semisyn_editing_{engine}"


@dataclass(frozen=True, kw_only=True)
class EditingOptions:
    """Settings of the editing (section ``semisyn.editing``).

    engine: of this rule; configs: {name: configuration}; choice: {finding: name}, or ``selection``; visible: smallest
    visible change, grey levels; own: {engine: its own settings}; together: configurations that one rule job edits, []
    for the one in its file name; parts: number of parts of the trial jobs.
    """

    engine: str
    configs: dict[str, dict]
    choice: dict[str, str] | str
    max_leak: float
    visible: float = 4.0
    seed: int
    findings: list[str]
    parts: int = 1
    findings_file: str = ""
    own: dict = field(default_factory=dict)
    together: list[str] = field(default_factory=list)


class ConfigFiles(NamedTuple):
    """Files of one configuration: the edited images, their boxes, and the ledger."""

    output: str
    boxes: str
    excluded: str


def run_shard(
    *,
    plan: str,
    placed: str | list[str],
    frames: str | list[str],
    organs: str | list[str],
    output: str,
    boxes: str,
    excluded: str,
    shard: str,
    config: str,
    options: EditingOptions,
    attrs: dict,
    threads: int,
    compute: dict | None = None,
    choice: str = "",
    findings_file: str = "",
    **files: str,
) -> None:
    """Edit one part of the placed trial jobs or, under ``chosen``, a shard's placed jobs that chose this engine.

    ``plan``: jobs; ``placed``: their boxes. For a part of the trial jobs, ``placed``, ``frames`` and ``organs`` list
    all shards. ``findings_file``: the user's findings; ``choice``: the result of semisyn_selection, if the settings use
    it. Writes ``output`` (HDF5, key image_id = job: ``image`` uint8 (512, 512), ``lesion`` packed bool, and the
    frame's ``to_original`` and ``original_shape``), ``boxes`` (:data:`BOXES`) and the ledger ``excluded`` (bad_picture,
    nothing_changed, leaked, no_cell, engine_failure). Raises UserError for an unknown engine.
    """
    inputs = {"plan": plan, "placed": placed, "frames": frames, "organs": organs, "shard": shard, "choice": choice}
    inputs |= {"attrs": attrs, "threads": threads, "compute": compute, "files": files}
    _edit_shard({config: ConfigFiles(output, boxes, excluded)}, replace(options, findings_file=findings_file), **inputs)


def run_together(
    *,
    plan: str,
    placed: str | list[str],
    frames: str | list[str],
    organs: str | list[str],
    output: list[str],
    boxes: list[str],
    excluded: list[str],
    shard: str,
    options: EditingOptions,
    attrs: dict,
    threads: int,
    compute: dict | None = None,
    findings_file: str = "",
    **files: str,
) -> None:
    """Edit the part ``shard`` of the trial jobs under each of ``options.together``; output paths are in that order.

    Work that the configurations share is done once; the images equal those of :func:`run_shard`. Raises like it.
    """
    targets = {
        name: ConfigFiles(*paths) for name, *paths in zip(options.together, output, boxes, excluded, strict=True)
    }
    inputs = {"plan": plan, "placed": placed, "frames": frames, "organs": organs, "shard": shard, "choice": ""}
    # attributes name the engine's rule, so that the files equal those of run_shard
    inputs |= {"attrs": attrs | {"stage": STAGE.format(engine=options.engine)}, "threads": threads}
    full_options = replace(options, findings_file=findings_file)
    _edit_shard(targets, full_options, compute=compute, files=files, **inputs)


def _edit_shard(
    targets: Mapping[str, ConfigFiles],
    options: EditingOptions,
    *,
    plan: str,
    placed: str | list[str],
    frames: str | list[str],
    organs: str | list[str],
    shard: str,
    choice: str,
    attrs: dict,
    threads: int,
    compute: dict | None,
    files: dict[str, str],
) -> None:
    """Edit a shard under all configurations of ``targets``, {configuration: its files}."""
    every = [placed] if isinstance(placed, str) else placed
    tables = read_table(plan), pl.concat([read_table(path) for path in every])
    per_config = {config: jobs_of(*tables, shard, config, options, choice) for config in targets}
    # the configurations of a job follow one another, so that a batch holds them together
    job_by_key = {
        (job_id, config): per_config[config][job_id]
        for job_id in sorted({job_id for jobs in per_config.values() for job_id in jobs})
        for config in targets
        if job_id in per_config[config]
    }
    texts = frozenset(text for _, job in job_by_key.values() for text in (job.prompt, job.config["negative"]))
    engine_settings = options.own.get(options.engine, {})
    editor = load_engine(
        options.engine, options, Setup.for_engine(engine_settings, files, compute, options.engine), texts
    )
    ledger = Ledger("semisyn_editing")
    rows: dict[str, list[dict]] = {config: [] for config in targets}

    def judge_edit(source: np.ndarray, masks: dict, job: Job, edited: EditedImage) -> tuple[tuple | None, Fault | None]:
        try:
            done = evaluate_edit(source, masks, job, edited, visible=options.visible, max_leak=options.max_leak)
        except EditRefused as fault:
            refusal = fault.reason, str(fault)
            return None, EngineFault.from_error(fault, *refusal) if fault.reason == "bad_picture" else refusal
        return (done, [row | {"drawn": _as_json(edited.parameters)} for row in done.boxes]), None

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
        writer_keywords = {"attrs": attrs, "units": UNITS, "pictures": ("image",), "empty": empty}
        writers = {
            name: stack.enter_context(ShardWriter(target.output, **writer_keywords)) for name, target in targets.items()
        }

        def read_inputs(name: tuple[str, str]) -> tuple[np.ndarray, dict[str, np.ndarray], Job]:
            image_id, job = job_by_key[name]
            # masks are made here, one by one: those of all jobs would not fit in memory
            masks = organ_shards.shard_of(image_id).masks(image_id)
            return frame_shards.shard_of(image_id).get("image", image_id), masks, replace(job, mask=_job_mask(job))

        how = {"engine": editor, "threads": threads, "compute": compute}
        for (job_id, config), (edited_image, box_rows) in process_singly_or_batched(
            ledger, list(job_by_key), read_inputs, work, work_batch, **how
        ):
            image_id, job = job_by_key[job_id, config]
            frame = frame_shards.shard_of(image_id)
            back = {name: frame.get(name, image_id) for name in ("to_original", "original_shape")}
            writers[config].append(job_id, image=edited_image.image, lesion=edited_image.lesion, **back)
            by = config_of(job.finding, config, options, choice)
            rows[config] += [row | {"config": by} for row in box_rows]
        for config, target in targets.items():
            _ledger_of_config(ledger, config).finish(target.excluded, per_config[config])
    for config, target in targets.items():
        write_table(target.boxes, pl.DataFrame(rows[config], schema=schema(BOXES)), BOXES)


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
        return _read_choice(choice)[finding]["config"]
    return options.choice.get(finding, DEFAULT_CONFIG)


@cache
def _read_choice(path: str) -> dict[str, dict]:
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


def _job_mask(job: Job) -> np.ndarray:
    blur_settings = {name: job.config[key] for name, key in (("blur", "blur"), ("r", "blur_r"), ("beta", "blur_beta"))}
    return soft_mask(job.boxes, (FRAME_SIZE, FRAME_SIZE), **blur_settings)


def _as_json(drawing: dict) -> str:
    return json.dumps(drawing, sort_keys=True, default=float)
