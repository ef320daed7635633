"""Read the flow of images through each stage from the files of a run."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from cxr.base.errors import StoreError
from cxr.base.exclusions import STAGES
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_lines, read_table
from cxr.reporting.tables.conservation import Flow

BY_THRESHOLDS = ("masks", "dataset")
"""Stages that run once per threshold set; their gathered ledgers have a column ``thresholds``."""


def threshold_set_of(path: str | Path) -> str:
    """Return the threshold set of a file, which is the name of its folder."""
    return Path(path).parent.name


def read_column(paths: Iterable[str], name: str) -> frozenset[str]:
    """Return the values of one column over all tables."""
    return frozenset(value for path in paths for value in read_table(path)[name])


def read_shard_ids(paths: Iterable[str]) -> frozenset[str]:
    """Return the image ids of HDF5 shards."""
    image_ids: set[str] = set()
    for path in paths:
        with Shard(path) as shard:
            image_ids.update(shard.ids)
    return frozenset(image_ids)


def read_ledgers(paths: Iterable[str]) -> dict[str, pl.DataFrame]:
    """Return {stage: its ledger}; the folder's name is the stage. Raises StoreError if a stage has none."""
    ledger_by_stage = {Path(path).parent.name: read_table(path) for path in paths}
    missing = [stage for stage in STAGES if stage not in ledger_by_stage]
    if missing:
        raise StoreError(f"results/{missing[0]}/excluded.parquet is missing: run `snakemake {missing[0]}`")
    return ledger_by_stage


def find_reasons(ledger: pl.DataFrame, thresholds: str | None = None) -> dict[str, str]:
    """Return {image_id: reason}. Raises StoreError for an image that is excluded twice by one stage."""
    if thresholds is not None:
        ledger = ledger.filter(pl.col("thresholds") == thresholds)
    reason_by_image = dict(ledger.select("image_id", "reason").iter_rows())
    if len(reason_by_image) != len(ledger):
        raise StoreError(f"{ledger['stage'][0]}: an image is excluded twice; delete its results and run again")
    return reason_by_image


def input_image_ids(images: pl.DataFrame) -> frozenset[str]:
    """Return the ids of all input images. Raises StoreError for a duplicate id."""
    image_ids = frozenset(images["image_id"])
    if len(image_ids) != len(images):
        raise StoreError(
            "an image_id is repeated in results/cohort/images.parquet: delete results/cohort and run again"
        )
    return image_ids


def shared_flows(
    *,
    images: pl.DataFrame,
    excluded: Mapping[str, pl.DataFrame],
    cohort: list[str],
    frames: list[str],
    reports: list[str],
    organs: list[str],
    anomaly: list[str],
    anatomy: list[str],
    boxes: list[str],
) -> dict[str, Flow]:
    """Return the flow of every stage that does not depend on thresholds; the lists are its shards.

    The boxes stage writes nothing for an image without a box. Its accepted images are thus those that are not excluded
    or have boxes, so that boxes of an excluded image violate the balance.
    """
    excluded_reasons = {stage: find_reasons(excluded[stage]) for stage in STAGES if stage not in BY_THRESHOLDS}
    accepted = {"cohort": read_column(cohort, "image_id")}
    accepted |= {
        stage: read_shard_ids(paths)
        for stage, paths in (("frames", frames), ("organs", organs), ("anomaly", anomaly), ("anatomy", anatomy))
    }
    reported_studies = {line["study_id"] for path in reports for line in read_lines(path)}
    study_of = dict(images.select("image_id", "study_id").iter_rows())
    accepted["reports"] = frozenset(image for image in accepted["cohort"] if study_of[image] in reported_studies)
    accepted["boxes"] = (accepted["frames"] - excluded_reasons["boxes"].keys()) | read_column(boxes, "image_id")
    entered = {
        "cohort": input_image_ids(images),
        "frames": accepted["cohort"],
        "reports": accepted["cohort"],
        "organs": accepted["frames"],
        "anomaly": accepted["organs"],
        "anatomy": accepted["anomaly"],
        "boxes": accepted["frames"],
    }
    return {stage: Flow(entered[stage], accepted[stage], excluded_reasons[stage]) for stage in entered}


def add_set_flows(
    shared: Mapping[str, Flow],
    excluded: Mapping[str, pl.DataFrame],
    thresholds: str,
    *,
    studies: list[str],
    with_pairs: frozenset[str],
) -> dict[str, Flow]:
    """Add the stages masks and dataset of one threshold set. ``studies``: tables of studies of the masks stage."""
    ready = shared["anatomy"].accepted & shared["boxes"].accepted & shared["reports"].accepted
    masks = Flow(ready, read_column(studies, "image_id"), find_reasons(excluded["masks"], thresholds))
    dataset = Flow(masks.accepted, with_pairs, find_reasons(excluded["dataset"], thresholds))
    return {**shared, "masks": masks, "dataset": dataset}
