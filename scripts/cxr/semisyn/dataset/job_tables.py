"""Write the dataset's tables: the outcome of every job (one image to make), and the exported images and boxes."""

from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.columns import read_columns, schema
from cxr.base.errors import StoreError
from cxr.base.hdf5 import FRAME_SIZE, Shard
from cxr.base.jobs import log
from cxr.base.resources import load_resource
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, read_tables, write_table
from cxr.geometry.affine import box_to_frame, frame_scales
from cxr.geometry.boxes import CORNERS
from cxr.semisyn.shared import MEASURES, describe_shortfalls

SYNTHETIC = "synthetic finding"
"""Text with which every table row and every image is marked."""
IMAGES = read_columns("semisyn_dataset", "images")
BOXES = read_columns("semisyn_dataset", "boxes") | MEASURES | {"says": IMAGES["says"]}
JOBS = read_columns("semisyn_dataset", "jobs")
CONSERVATION = read_columns("semisyn_dataset", "conservation")
COUNTS = read_columns("semisyn_dataset", "counts")
RESOURCE_FILES = ("semisyn/conventions.yaml", "columns/semisyn_dataset.toml")


def read_conventions() -> dict[str, dict[str, dict[str, float]]]:
    """Return {target: {finding: parameters of :func:`rescale_box`}}. ``source`` has none: its boxes stay unchanged."""
    return {"source": {}} | load_resource(RESOURCE_FILES[0])


def rescale_box(box: np.ndarray, finding: str, target: str, affine: np.ndarray, picture: np.ndarray) -> np.ndarray:
    """Return a box (4,), in frame pixels, with its height changed to the mean height-to-width ratio of the dataset
    ``target`` in original pixels. conventions.yaml has a ratio for each ``finding``; without one, the box is unchanged.
    The lower edge stays (anchor ``bottom``), or the point at the fraction ``at`` of the old height becomes the centre.
    ``affine``: frame to original pixels; ``picture`` (4,): box to which the result is clipped."""
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
"""Fraction of the training patients whose images become validation images if the split ``validate`` is empty."""


def run(
    *, plan: str, placed: Sequence[str], not_placed: str, edited: Sequence[str], edited_boxes: Sequence[str],
    not_edited: Sequence[str], healthy: str, images: str, boxes: str, jobs: str, conservation: str, counts: str,
    findings: list[str], seed: int,
) -> None:  # fmt: skip
    """Write the dataset's tables from the results of the placement (``placed``, ``not_placed``) and of the editing with
    the chosen configurations (``edited...``, ``not_edited``). Raise StoreError if a job is lost or counted twice."""
    planned, placed_boxes, box_table = read_table(plan), read_tables(placed), read_tables(edited_boxes)
    shapes = _read_shapes([edited] if isinstance(edited, str) else edited)
    states = _job_states(planned, set(placed_boxes["job_id"]), not_placed, set(shapes["job_id"]), not_edited)
    rows = rank_jobs(planned, states)
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


def _read_shapes(paths: Iterable[str]) -> pl.DataFrame:
    """Return a row per edited image: engine (from the path), the original image's shape and the affine map to it."""
    rows: dict[str, tuple] = {}
    for path in paths:
        engine = Path(path).parent.parent.name
        with Shard(path) as shard:
            for name in shard.ids:
                if name in rows:
                    raise StoreError(f"{path}: job {name} was also edited by {rows[name][1]}: rerun semisyn_editing")
                shape = map(int, shard.get("original_shape", name))
                rows[name] = name, engine, *shape, shard.get("to_original", name).ravel().tolist()
    names = ("job_id", "engine", "rows", "columns", "to_original")
    return pl.DataFrame([*rows.values()], schema={name: IMAGES[name].kind for name in names}, orient="row")


def _job_states(
    planned: pl.DataFrame, placed: Set[str], not_placed: str, edited: Set[str], not_edited: str | Sequence[str]
) -> pl.DataFrame:
    """Return a row per job (image to make): was it placed and edited, or why not? Raise StoreError if a job is lost."""
    ledgers = []
    for paths, started, done in ((not_placed, set(planned["job_id"]), placed), (not_edited, placed, edited)):
        ledger = read_tables(paths)
        ended = [*done, *ledger["image_id"]]
        if sorted(ended) != sorted(started):
            raise StoreError(
                f"{ledger['stage'][0] if len(ledger) else 'placement or editing of semisyn'}: "
                f"{len(started - set(ended))} jobs lack an outcome and {len(set(ended) - started)} were not planned, "
                "because the files of this stage belong to different runs: rerun this stage"
            )
        ledgers.append(ledger.select("stage", "reason", job_id="image_id"))
    jobs = planned.select("job_id", "finding", "index").with_columns(
        placed=pl.col("job_id").is_in(list(placed)), edited=pl.col("job_id").is_in(list(edited))
    )
    states = jobs.join(pl.concat(ledgers), on="job_id", how="left", maintain_order="left")
    return states.with_columns(pl.col("stage", "reason").fill_null(""))


def rank_jobs(planned: pl.DataFrame, job_states: pl.DataFrame) -> pl.DataFrame:
    """Return :data:`JOBS` with two additional columns. ``requested``: number of images of the finding to export;
    ``rank``: position of an edited job within its finding, from 0. From rank ``requested`` on, jobs are spare."""
    quota = planned.group_by("finding").agg(requested=(~pl.col("is_spare")).sum().cast(pl.Int64))
    rank = pl.when("edited").then(pl.col("edited").cast(pl.Int64).cum_sum().over("finding", order_by="index") - 1)
    rows = job_states.join(quota, on="finding", how="left").with_columns(rank=rank, planned=pl.lit(True))
    rows = rows.with_columns(exported=(pl.col("rank") < pl.col("requested")).fill_null(False))
    spare = pl.col("edited") & ~pl.col("exported")
    return rows.with_columns(
        stage=pl.when(spare).then(pl.lit(STAGE)).otherwise("stage"),
        reason=pl.when(spare).then(pl.lit(SPARE)).otherwise("reason"),
    ).sort("job_id")


def conservation_table(rows: pl.DataFrame, findings: Sequence[str]) -> pl.DataFrame:
    """Return :data:`CONSERVATION`, which counts how the jobs ended. Raise StoreError if the counts do not add up."""
    is_excluded, placed, edited = pl.col("reason") != "", pl.col("placed"), pl.col("edited")
    counts = rows.group_by("finding").agg(
        pl.col("requested").max(),
        pl.col("planned", "placed", "edited", "exported").sum(),
        not_placed=(~placed & is_excluded).sum(),
        not_edited=(placed & ~edited & is_excluded).sum(),
        spare=(pl.col("reason") == SPARE).sum(),
    )
    table = pl.DataFrame({"finding": findings}, schema={"finding": pl.String})
    table = table.join(counts, on="finding", how="left", maintain_order="left").fill_null(0)
    table = table.cast({name: pl.Int64 for name in table.columns if name != "finding"})
    total = table.drop("finding").sum().with_columns(finding=pl.lit("all"))
    table = pl.concat([table, total.select(table.columns)])
    ends = pl.sum_horizontal("not_placed", "not_edited", "spare", "exported")
    is_balanced = (pl.col("planned") == ends) & (placed == pl.col("planned") - pl.col("not_placed"))
    table = table.with_columns(balanced=pl.when(is_balanced).then(pl.lit("yes")).otherwise(pl.lit("no")))
    if (table["balanced"] == "no").any():
        raise StoreError("semisyn's jobs do not add up, because its files are of different runs: rerun semisyn_editing")
    return table.select(*CONSERVATION)


def _image_table(
    rows: pl.DataFrame, planned: pl.DataFrame, healthy: pl.DataFrame, box_table: pl.DataFrame, shapes: pl.DataFrame,
    seed: int,
) -> pl.DataFrame:  # fmt: skip
    configs = box_table.select("job_id", "config").unique("job_id", keep="first", maintain_order=True)
    table = rows.filter("exported").select("job_id", "rank", "requested").join(planned, on="job_id", how="inner")
    table = table.join(healthy.select("image_id", "study_id", "subject_id", "split"), on="image_id", how="inner")
    table = table.join(configs, on="job_id", how="left").join(shapes, on="job_id", how="left").sort("job_id")
    if len(table) < int(rows["exported"].sum()):
        raise StoreError("an exported job uses an image that is not in the healthy pool: rerun semisyn_placement")
    # images go to the subset of their split; if validate is empty, some patients of train, never all, go to val
    patients = sorted(set(table.filter(pl.col("split") == "train")["subject_id"]))
    order = sorted(patients, key=lambda subject: (stable_hash(seed, "validation", subject), subject))
    number = 0 if "validate" in set(table["split"]) else max(round(VALIDATION_SHARE * len(order)), int(len(order) > 1))
    is_validation = (pl.col("split") == "train") & pl.col("subject_id").is_in(order[:number])
    subset = pl.when(is_validation).then(pl.lit("val")).otherwise(pl.col("split").replace_strict(SUBSETS))
    return table.with_columns(subset.alias("subset"), says=pl.lit(SYNTHETIC)).select(*IMAGES)


def _box_table(images: pl.DataFrame, box_table: pl.DataFrame, placed_boxes: pl.DataFrame) -> pl.DataFrame:
    """Return the table :data:`BOXES`, which has each box of an exported job once in each box shape (``target``)."""
    zones = dict(zip(placed_boxes.select("job_id", "side").iter_rows(), placed_boxes["zone"], strict=True))
    facts = {row["job_id"]: row for row in images.iter_rows(named=True)}
    exported = box_table.filter(pl.col("job_id").is_in(images["job_id"].implode())).sort("job_id", "kind", "number")
    rows = []
    for row in exported.iter_rows(named=True):
        image = facts[row["job_id"]]
        affine = np.reshape(image["to_original"], (2, 3))
        picture = box_to_frame((0.0, 0.0, image["columns"], image["rows"]), affine).clip(0.0, FRAME_SIZE)
        box = np.array([row[name] for name in CORNERS], np.float64)
        row |= {"finding": image["finding"], "zone": zones.get((row["job_id"], row["side"]), ""), "says": SYNTHETIC}
        for target in read_conventions():
            corners = rescale_box(box, image["finding"], target, affine, picture).tolist()
            rows.append(row | {"target": target} | dict(zip(CORNERS, corners, strict=True)))
    return pl.DataFrame(rows, schema=schema(BOXES))


def count_table(boxes: pl.DataFrame) -> pl.DataFrame:
    """Return the table :data:`COUNTS`: images by finding, side and zone. Boxes in both lungs give the side ``both``."""
    conditioning_boxes = boxes.filter((pl.col("kind") == "conditioning") & (pl.col("target") == "source"))
    sides = conditioning_boxes.group_by("job_id", "finding").agg(
        side=pl.when(pl.col("side").n_unique() > 1).then(pl.lit("both")).otherwise(pl.col("side").first()),
        zone=pl.col("zone").first(),
    )
    table = sides.group_by("finding", "side", "zone").agg(images=pl.len().cast(pl.Int64))
    return table.sort("finding", "side", "zone").select(*COUNTS)
