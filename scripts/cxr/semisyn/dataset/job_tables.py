"""Write the dataset's tables: the outcome of every job, and the images and boxes of the exported ones."""

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from pathlib import Path

import numpy as np
import polars as pl
import yaml

from cxr.base.columns import Column, Columns, schema
from cxr.base.errors import StoreError
from cxr.base.hdf5 import FRAME_SIZE, Shard
from cxr.base.jobs import log
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, read_tables, write_table
from cxr.geometry.affine import box_to_frame, frame_scales
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.dataset.shortfalls import describe_shortfalls

SYNTHETIC = "synthetic finding"
"""Label that every row and every image carries."""
_EDGES = zip(CORNERS, ("Left", "Top", "Right", "Bottom"), strict=True)

IMAGES: Columns = {
    "job_id": Column(pl.String, "Job, and name of the edited image."),
    "image_id": Column(pl.String, "Healthy source image."),
    "study_id": Column(pl.String, "Its study."),
    "subject_id": Column(pl.String, "Its patient."),
    "split": Column(pl.String, "Split of the patient: train, validate or test."),
    "subset": Column(pl.String, "Folder of the exports: train, val or test."),
    "finding": Column(pl.String, "Finding that was put in."),
    "rank": Column(pl.Int64, "Rank among the edited images of its finding, from 0; a size takes the lowest ranks."),
    "asked": Column(pl.Int64, "Images requested of its finding; the sizes fifth and half are fractions of it."),
    "prompt": Column(pl.String, "Sentence that describes the finding, as in a report."),
    "config": Column(pl.String, "Editing configuration."),
    "engine": Column(pl.String, "Editing engine."),
    "rows": Column(pl.Int64, "Height of the original image.", "pixels"),
    "columns": Column(pl.Int64, "Its width.", "pixels"),
    "to_original": Column(pl.List(pl.Float64), "Affine from frame to original pixels, row by row, six numbers."),
    "says": Column(pl.String, "Always `synthetic finding`."),
}
BOXES: Columns = {
    "job_id": Column(pl.String, "Job."),
    "finding": Column(pl.String, "Finding."),
    "number": Column(pl.Int64, "Number of the box within the job, from 0."),
    "kind": Column(pl.String, "conditioning: as requested; visible: tight box of the visible change."),
    "target": Column(pl.String, "Readers whose convention the box follows: source, vindr or mimic."),
    "side": Column(pl.String, "Lung of the box: right or left; empty for the heart."),
    "zone": Column(pl.String, "Zone of the lung that the prompt names; empty without one."),
    **{name: Column(pl.Float64, f"{edge_name} edge, half-open.", "frame pixels") for name, edge_name in _EDGES},
    "change_inside": Column(pl.Float64, "Mean absolute change inside the job's boxes.", "grey levels"),
    "change_outside_max": Column(pl.Float64, "Largest absolute change outside them.", "grey levels"),
    "leak": Column(pl.Float64, "Fraction of the squared change outside them."),
    "area": Column(pl.Int64, "Pixels inside them that changed visibly.", "pixels"),
    "config": Column(pl.String, "Configuration that made the image."),
    "drawn": Column(pl.String, "What the engine drew for the job, JSON."),
    "says": Column(pl.String, "Always `synthetic finding`."),
}
JOBS: Columns = {
    "job_id": Column(pl.String, "Job."),
    "finding": Column(pl.String, "Finding."),
    "planned": Column(pl.Boolean, "Always true."),
    "placed": Column(pl.Boolean, "Whether its boxes could be placed."),
    "edited": Column(pl.Boolean, "Whether its image was edited."),
    "exported": Column(pl.Boolean, "Whether it is in the dataset."),
    "stage": Column(pl.String, "Stage at which it stopped; empty for an exported job."),
    "reason": Column(pl.String, "Code of the reason ([reasons.md](reasons.md)), or `spare`: edited, but not needed."),
}
CONSERVATION: Columns = {
    "finding": Column(pl.String, "Finding, or `all`."),
    "asked": Column(pl.Int64, "Images requested."),
    "planned": Column(pl.Int64, "Jobs planned, spare ones included."),
    "not_placed": Column(pl.Int64, "Jobs excluded by placement."),
    "placed": Column(pl.Int64, "Jobs with boxes."),
    "not_edited": Column(pl.Int64, "Jobs excluded by editing."),
    "edited": Column(pl.Int64, "Edited images."),
    "spare": Column(pl.Int64, "Edited images that no size needs."),
    "exported": Column(pl.Int64, "Images of the dataset."),
    "balanced": Column(pl.String, "yes: each job is in exactly one of not_placed, not_edited, spare, exported."),
}
COUNTS: Columns = {
    "finding": Column(pl.String, "Finding."),
    "side": Column(pl.String, "right, left, both, or empty for the heart."),
    "zone": Column(pl.String, "Zone that the prompt names; empty without one."),
    "images": Column(pl.Int64, "Images of the dataset."),
}


RESOURCE_FILES = ("semisyn/conventions.yaml",)
SOURCE_CONVENTION = "source"


@cache
def read_conventions() -> dict[str, dict[str, dict[str, float]]]:
    """Return {target: {finding: {height_over_width, anchor, at}}}; the target ``source`` changes nothing."""
    conventions_by_target = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))
    return {SOURCE_CONVENTION: {}} | conventions_by_target


def rescale_box(box: np.ndarray, finding: str, target: str, affine: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """Return a box (4,) in frame pixels as the readers of ``target`` would draw it, float64 (4,).

    The width stays; the height becomes the width times the readers' mean height-to-width ratio in original pixels.
    ``anchor``: ``bottom`` keeps the lower edge; else the point at ``at`` of the old height becomes the centre. The
    result is clipped to the ``picture``.
    """
    convention: Mapping = read_conventions()[target].get(finding, {})
    x1, y1, x2, y2 = (float(edge) for edge in box)
    if not convention:
        return np.array([x1, y1, x2, y2])
    across, down = frame_scales(affine)
    height = (x2 - x1) * convention["height_over_width"] * across / down
    if convention["anchor"] == "bottom":
        y1 = y2 - height
    else:
        centre = y1 + convention["at"] * (y2 - y1)
        y1, y2 = centre - height / 2, centre + height / 2
    return np.clip([x1, y1, x2, y2], np.tile(picture[:2], 2), np.tile(picture[2:], 2))


SPARE, STAGE = "spare", "semisyn_dataset"
SUBSETS = {"train": "train", "validate": "val", "test": "test"}


VALIDATION_SHARE = 0.05
"""Fraction of the train patients whose images are exported as val if the split validate has no image."""


def run(
    *, plan: str, placed: Sequence[str], not_placed: str, edited: Sequence[str], edited_boxes: Sequence[str],
    not_edited: Sequence[str], healthy: str, images: str | Path, boxes: str | Path, jobs: str | Path,
    conservation: str | Path, counts: str | Path, findings: list[str], seed: int,
) -> None:  # fmt: skip
    """Write the tables :data:`IMAGES`, :data:`BOXES`, :data:`JOBS`, :data:`CONSERVATION` and :data:`COUNTS`.

    ``plan``: all jobs; ``placed``, ``not_placed``: boxes and ledger of placement; ``edited``, ``edited_boxes``,
    ``not_edited``: shards, boxes and ledgers of the chosen configurations, of all engines; ``healthy``: the pool.
    Raises StoreError if a job is lost or counted twice.
    """
    planned, placed_boxes, box_table = read_table(plan), read_tables(placed), read_tables(edited_boxes)
    shapes = _read_shapes([edited] if isinstance(edited, str) else edited)
    rows = rank_jobs(planned, _job_states(planned, placed_boxes, not_placed, shapes.keys(), not_edited))
    funnel = conservation_table(rows, findings)
    write_table(jobs, rows.select(*JOBS), JOBS)
    write_table(conservation, funnel, CONSERVATION)
    for line in describe_shortfalls(funnel.to_dicts()):
        log.warning("%s", line)
    image_table = _image_table(rows, planned, read_table(healthy), box_table, shapes, seed)
    write_table(images, image_table, IMAGES)
    table = _box_table(image_table, box_table, placed_boxes)
    write_table(boxes, table, BOXES)
    write_table(counts, count_table(table), COUNTS)


def _read_shapes(paths: Iterable[str]) -> dict[str, tuple]:
    """Return {job_id: (engine, (rows, columns), to_original)} of the edited images; the path names the engine."""
    shapes: dict[str, tuple] = {}
    for path in paths:
        engine = Path(path).parent.parent.name
        with Shard(path) as shard:
            for name in shard.ids:
                if name in shapes:
                    raise StoreError(
                        f"{path}: job {name} was edited by {shapes[name][0]} too: run semisyn_editing again"
                    )
                shape = tuple(map(int, shard.get("original_shape", name)))
                shapes[name] = engine, shape, shard.get("to_original", name)
    return shapes


def _job_states(
    planned: pl.DataFrame, placed: pl.DataFrame, not_placed: str, edited: Set[str], not_edited: str | Sequence[str]
) -> pl.DataFrame:
    """Return job_id, finding, index, placed, edited, stage and reason of all jobs.

    Raises StoreError unless each planned job was placed or excluded once, and each placed job edited or excluded once.
    """
    boxed = set(placed["job_id"])
    stopped = {}
    for paths, started, done in ((not_placed, set(planned["job_id"]), boxed), (not_edited, boxed, edited)):
        ledger = read_tables(paths)
        ended = [*done, *ledger["image_id"]]
        if sorted(ended) != sorted(started):
            raise StoreError(
                f"{ledger['stage'][0] if len(ledger) else 'placement or editing'} does not balance: "
                f"{len(started - set(ended))} jobs lost, {len(set(ended) - started)} that nobody asked for; its files "
                "belong to different runs: run it again"
            )
        stopped |= {row["image_id"]: (row["stage"], row["reason"]) for row in ledger.iter_rows(named=True)}
    states = [stopped.get(job, ("", "")) for job in planned["job_id"]]
    return planned.select(
        "job_id",
        "finding",
        "index",
        placed=pl.col("job_id").is_in(list(boxed)),
        edited=pl.col("job_id").is_in(list(edited)),
        stage=pl.Series([stage for stage, _ in states], dtype=pl.String),
        reason=pl.Series([reason for _, reason in states], dtype=pl.String),
    )


def rank_jobs(planned: pl.DataFrame, job_states: pl.DataFrame) -> pl.DataFrame:
    """Return :data:`JOBS` with ``asked``, the images requested of each finding, and ``rank``.

    The rank counts the edited jobs of a finding in the plan's order, from 0.
    """
    quota = planned.group_by("finding").agg(asked=(~pl.col("is_spare")).sum().cast(pl.Int64))
    rank = pl.when("edited").then(pl.col("edited").cast(pl.Int64).cum_sum().over("finding", order_by="index") - 1)
    rows = job_states.join(quota, on="finding", how="left").with_columns(rank=rank, planned=pl.lit(True))
    rows = rows.with_columns(exported=(pl.col("rank") < pl.col("asked")).fill_null(False))
    spare = pl.col("edited") & ~pl.col("exported")
    return rows.with_columns(
        stage=pl.when(spare).then(pl.lit(STAGE)).otherwise("stage"),
        reason=pl.when(spare).then(pl.lit(SPARE)).otherwise("reason"),
    ).sort("job_id")


def conservation_table(rows: pl.DataFrame, findings: Sequence[str]) -> pl.DataFrame:
    """Return :data:`CONSERVATION` of the jobs (:func:`rank_jobs`). Raises StoreError if it does not balance."""
    funnel_rows = []
    for finding in findings:
        jobs = rows.filter(pl.col("finding") == finding)
        counts = {name: int(jobs[name].sum()) for name in ("placed", "edited", "exported")}
        row = {"finding": finding, "asked": jobs["asked"].max() or 0, "planned": len(jobs)} | counts
        row["not_placed"] = int((~jobs["placed"] & (jobs["reason"] != "")).sum())
        row["not_edited"] = int((jobs["placed"] & ~jobs["edited"] & (jobs["reason"] != "")).sum())
        row["spare"] = int((jobs["reason"] == SPARE).sum())
        funnel_rows.append(row)
    table = pl.DataFrame(funnel_rows)
    total = table.drop("finding").sum().with_columns(finding=pl.lit("all"))
    table = pl.concat([table, total.select(table.columns)])
    ends = pl.sum_horizontal("not_placed", "not_edited", "spare", "exported")
    fine = (pl.col("planned") == ends) & (pl.col("placed") == pl.col("planned") - pl.col("not_placed"))
    table = table.with_columns(balanced=pl.when(fine).then(pl.lit("yes")).otherwise(pl.lit("no")))
    if (table["balanced"] == "no").any():
        raise StoreError("the jobs of semisyn do not balance: their files belong to different runs: run editing again")
    return table.select(*CONSERVATION).cast(schema(CONSERVATION))


def _image_table(
    rows: pl.DataFrame, planned: pl.DataFrame, healthy: pl.DataFrame, box_table: pl.DataFrame, shapes: dict, seed: int
) -> pl.DataFrame:
    source_ids = healthy.select("image_id", "study_id", "subject_id", "split")
    configs = box_table.select("job_id", "config").unique("job_id", keep="first", maintain_order=True)
    exported_jobs = rows.filter("exported").select("job_id", "rank", "asked")
    exported_jobs = exported_jobs.join(planned, on="job_id", how="inner").join(source_ids, on="image_id", how="inner")
    exported_jobs = exported_jobs.join(configs, on="job_id", how="left").sort("job_id")
    if len(exported_jobs) < int(rows["exported"].sum()):
        raise StoreError("an exported job uses an image that is not in the healthy pool: run semisyn_placement again")
    cells = [shapes[job] for job in exported_jobs["job_id"]]
    return exported_jobs.with_columns(
        subset=pl.Series(assign_subsets(exported_jobs, seed), dtype=pl.String),
        engine=pl.Series([engine for engine, _, _ in cells], dtype=pl.String),
        rows=pl.Series([shape[0] for _, shape, _ in cells], dtype=pl.Int64),
        columns=pl.Series([shape[1] for _, shape, _ in cells], dtype=pl.Int64),
        to_original=pl.Series([affine.ravel().tolist() for *_, affine in cells], dtype=pl.List(pl.Float64)),
        says=pl.lit(SYNTHETIC),
    ).select(*IMAGES)


def assign_subsets(images: pl.DataFrame, seed: int) -> list[str]:
    """Return the export folder of each image: that of its split.

    If the split validate is empty, some patients of train go to val, never all. A patient's images share a folder.
    ``images``: columns subject_id and split.
    """
    without = "validate" not in set(images["split"])
    patients = sorted(set(images.filter(pl.col("split") == "train")["subject_id"]))
    order = sorted(patients, key=lambda subject: (stable_hash(seed, "validation", subject), subject))
    number = max(round(VALIDATION_SHARE * len(order)), int(len(order) > 1))
    validation_patients = set(order[:number] if without else ())
    return [
        SUBSETS["validate"] if split == "train" and subject in validation_patients else SUBSETS[split]
        for subject, split in images.select("subject_id", "split").iter_rows()
    ]


def _box_table(images: pl.DataFrame, box_table: pl.DataFrame, placed_boxes: pl.DataFrame) -> pl.DataFrame:
    """Return :data:`BOXES`: each box of the exported jobs in every convention."""
    zones = dict(zip(placed_boxes.select("job_id", "side").iter_rows(), placed_boxes["zone"], strict=True))
    facts = {row["job_id"]: row for row in images.iter_rows(named=True)}
    exported_boxes = box_table.filter(pl.col("job_id").is_in(images["job_id"].implode())).sort(
        "job_id", "kind", "number"
    )
    rows = []
    for row in exported_boxes.iter_rows(named=True):
        image = facts[row["job_id"]]
        affine = np.reshape(image["to_original"], (2, 3))
        picture = box_to_frame((0.0, 0.0, image["columns"], image["rows"]), affine).clip(0.0, FRAME_SIZE)
        box = np.array([row[name] for name in CORNERS], np.float64)
        box_row = row | {"finding": image["finding"], "zone": zones.get((row["job_id"], row["side"]), "")}
        for target in read_conventions():
            corners = rescale_box(box, image["finding"], target, affine, picture)
            rows.append(
                box_row | {"target": target, "says": SYNTHETIC} | dict(zip(CORNERS, corners.tolist(), strict=True))
            )
    return pl.DataFrame([{name: row[name] for name in BOXES} for row in rows], schema=schema(BOXES))


def count_table(boxes: pl.DataFrame) -> pl.DataFrame:
    """Return :data:`COUNTS` of the images of a table of boxes; an image with a box in each lung counts as both."""
    conditioning_boxes = boxes.filter((pl.col("kind") == "conditioning") & (pl.col("target") == "source"))
    sides = conditioning_boxes.group_by("job_id", "finding").agg(
        side=pl.when(pl.col("side").n_unique() > 1).then(pl.lit("both")).otherwise(pl.col("side").first()),
        zone=pl.col("zone").first(),
    )
    table = sides.group_by("finding", "side", "zone").agg(images=pl.len().cast(pl.Int64))
    return table.sort("finding", "side", "zone").select(*COUNTS)
