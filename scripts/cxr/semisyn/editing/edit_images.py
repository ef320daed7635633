"""The editing stage: puts the jobs' findings into the healthy images of a shard, under one configuration."""

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from cxr.base.columns import Column, schema
from cxr.base.engines import Setup
from cxr.base.faults import Tolerance
from cxr.base.hdf5 import FRAME_SIZE, Shard, ShardWriter
from cxr.base.ledger import Ledger
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.base.workers import EngineFault, Fault, sift_either
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.configs import CHOSEN, SELECTION, UNCHOSEN
from cxr.semisyn.editing.engine import Edited, Job, NoCell, load_engine
from cxr.semisyn.editing.masks import soft_mask
from cxr.semisyn.editing.outcome import Refused, outcome

BOXES = {
    "job_id": Column(pl.String, "Job, and the row of its image in the shard."),
    "number": Column(pl.Int64, "Number of the box within the job, from 0."),
    "kind": Column(pl.String, "conditioning: as it was asked; visible: what can be seen of it."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    **{
        name: Column(pl.Float64, f"{what} edge, half-open.", "frame px")
        for name, what in zip(CORNERS, ("Left", "Upper", "Right", "Lower"), strict=True)
    },
    "change_inside": Column(pl.Float64, "Mean size of the change inside the job's boxes.", "grey levels"),
    "change_outside_max": Column(pl.Float64, "Largest change outside of them.", "grey levels"),
    "leak": Column(pl.Float64, "Share of the squared change that lies outside of them."),
    "area": Column(pl.Int64, "Pixels inside of them that changed visibly.", "px"),
    "config": Column(pl.String, "Configuration that made the image."),
    "drawn": Column(pl.String, "What the engine drew for the job, JSON."),
}
UNITS = {"image": "grey levels"}


@dataclass(frozen=True)
class EditingOptions:
    """Settings of the editing (section ``semisyn.editing``).

    engine: of this rule; configs: {name: configuration}; choice: {finding: name} or the word selection;
    visible: grey levels from which a change is seen; own: {engine: its own settings}.
    """

    engine: str
    configs: dict[str, dict]
    choice: dict[str, str] | str
    max_leak: float
    visible: float
    seed: int
    findings: list[str]
    findings_file: str = ""
    own: dict = field(default_factory=dict)


def run_shard(
    *,
    plan: str,
    placed: str,
    frames: str,
    organs: str,
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
    """Edit the images of the shard's placed jobs: the trial jobs, or for ``chosen`` all those that chose this engine.

    ``plan``: jobs; ``placed``: their boxes; ``findings_file``: the user's findings; ``choice``: the file of the stage
    selection, if the settings leave the choice to it. Writes ``output`` (HDF5, key image_id = job: ``image`` uint8
    (512, 512), ``lesion`` packed bool, and the frame's ``to_original`` and ``original_shape``), ``boxes``
    (:data:`BOXES`) and the ledger ``excluded`` (bad_picture, nothing_changed, leaked, no_cell, engine_failure). Raises
    UserError for an unknown engine.
    """
    options = replace(options, findings_file=findings_file)
    taken = jobs_of(read_table(plan), read_table(placed), shard, config, options, choice)
    texts = frozenset(text for _, job in taken.values() for text in (job.prompt, job.config["negative"]))
    own = options.own.get(options.engine, {})
    editor = load_engine(options.engine, options, Setup.of(own, files, compute), texts)
    ledger, rows = Ledger("semisyn_editing"), []

    def made(source: np.ndarray, masks: dict, job: Job, edited: Edited) -> tuple[tuple | None, Fault | None]:
        try:
            done = outcome(source, masks, job, edited, visible=options.visible, max_leak=options.max_leak)
        except Refused as fault:
            told = fault.reason, str(fault)
            return None, EngineFault.of(fault, *told) if fault.reason == "bad_picture" else told
        told = {"config": config_of(job.finding, config, options, choice), "drawn": _text(edited.drawn)}
        return (done, [row | told for row in done.boxes]), None

    def work(image: np.ndarray, masks: dict, job: Job):
        try:
            return made(image, masks, job, editor.edit(image.copy(), masks, job))
        except NoCell as fault:
            return None, ("no_cell", str(fault))

    def work_batch(batch: list[tuple]):
        images, masks, jobs = map(list, zip(*batch, strict=True))
        try:
            edited = editor.edit_batch([image.copy() for image in images], masks, jobs)
        except NoCell as fault:
            if len(batch) == 1:
                return [(None, ("no_cell", str(fault)))]
            return [work_batch([row])[0] for row in batch]
        return [made(*row) for row in zip(images, masks, jobs, edited, strict=True)]

    square = (FRAME_SIZE, FRAME_SIZE)
    empty = {"image": (square, np.uint8), "lesion": (square, bool)}
    empty |= {"to_original": ((2, 3), np.float64), "original_shape": ((2,), np.int32)}
    with ExitStack() as stack:
        frame_shard, organ_shard = (stack.enter_context(Shard(path)) for path in (frames, organs))
        writer = stack.enter_context(ShardWriter(output, attrs=attrs, units=UNITS, pictures=("image",), empty=empty))

        def read(name: str) -> tuple[np.ndarray, dict[str, np.ndarray], Job]:
            image_id, job = taken[name]
            # the masks of all jobs at once would not fit
            return frame_shard.get("image", image_id), organ_shard.masks(image_id), replace(job, mask=_mask(job))

        batch = getattr(editor, "batch", None)
        tolerance = Tolerance.of(compute)
        how = {"threads": threads, "batch": batch, "tolerance": tolerance}
        done = sift_either(ledger, list(taken), read, work, work_batch, **how)
        for job_id, (found, told) in done:
            image_id = taken[job_id][0]
            back = {name: frame_shard.get(name, image_id) for name in ("to_original", "original_shape")}
            writer.append(job_id, image=found.image, lesion=found.lesion, **back)
            rows += told
        ledger.finish(excluded, taken)
    write_table(boxes, pl.DataFrame(rows, schema=schema(BOXES)), BOXES)


def jobs_of(
    plan: pl.DataFrame,
    placed: pl.DataFrame,
    shard: str,
    config: str,
    options: EditingOptions,
    choice: str = "",
) -> dict[str, tuple[str, Job]]:
    """Return {job_id: (image_id, job)} of the placed jobs of a shard that the engine edits under a configuration.

    Their masks are still missing.
    """
    names = {finding: config_of(finding, config, options, choice) for finding in options.findings}
    mine = [finding for finding, name in names.items() if options.configs[name]["engine"] == options.engine]
    asked = plan.filter(pl.col("shard") == shard, pl.col("finding").is_in(mine))
    if config != CHOSEN:
        asked = asked.filter("trial")
    boxes = {job: part for (job,), part in placed.group_by("job_id", maintain_order=True)}
    found = {}
    for row in asked.sort("job_id").iter_rows(named=True):
        if row["job_id"] in boxes:
            told = options.configs[names[row["finding"]]]
            found[row["job_id"]] = row["image_id"], _job(row, boxes[row["job_id"]], told, options.seed)
    return found


def config_of(finding: str, config: str, options: EditingOptions, choice: str = "") -> str:
    """Return the name of the configuration that edits a finding; ``choice``: the file of the stage selection."""
    if config != CHOSEN:
        return config
    if options.choice == SELECTION:
        return _selected(choice)[finding]["config"]
    return options.choice.get(finding, UNCHOSEN)


@cache
def _selected(path: str) -> dict[str, dict]:
    return yaml.safe_load(Path(path).read_text(encoding="utf-8"))


def _job(row: Mapping, boxes: pl.DataFrame, config: dict, seed: int) -> Job:
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


def _mask(job: Job) -> np.ndarray:
    how = {name: job.config[key] for name, key in (("blur", "blur"), ("r", "blur_r"), ("beta", "blur_beta"))}
    return soft_mask(job.boxes, (FRAME_SIZE, FRAME_SIZE), **how)


def _text(drawn: dict) -> str:
    return json.dumps(drawn, sort_keys=True, default=float)
