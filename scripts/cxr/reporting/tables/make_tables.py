"""The tables stage: write the paper's tables from our results, and check that no image is lost.

Three jobs with separate inputs, so that a missing input delays only its own table: the dataset's counts, recall of all
threshold sets, and, for the embedded cohort, the results against the ground truth.
"""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from cxr.base.hdf5 import Shard, Shards
from cxr.base.paths import RESOURCES
from cxr.base.tables import THRESHOLDS, read_lines, read_table, write_table
from cxr.reporting.tables import conservation, counts, paper, truth
from cxr.reporting.tables.conservation import (
    CONSERVATION,
    FUNNEL,
    require_balance,
    tabulate_conservation,
    tabulate_funnel,
)

RESOURCE_FILES = ("paper_tables.yaml",)


def run_counts(
    *,
    images: str,
    excluded: list[str],
    cohort: list[str],
    frames: list[str],
    reports: list[str],
    organs: list[str],
    anomaly: list[str],
    anatomy: list[str],
    boxes: list[str],
    studies: list[str],
    findings: list[str],
    lines: list[str],
    splits_table: str,
    funnel_table: str,
    conservation_table: str,
    counts_table: str,
    thresholds: list[str],
    global_share: dict[str, float],
    opacity_inference_share: float,
) -> None:
    """Write Tables 10-12, the funnel, the conservation table and the counts, each for every threshold set.

    ``excluded``: the ledgers of all stages; ``studies``, ``findings`` and ``lines`` are in a folder named after their
    threshold set; the shares are settings of the dataset. Raises StoreError if a stage lost or invented an image.
    """
    numbers = paper.read_paper_tables(RESOURCES / RESOURCE_FILES[0])
    every_image, ledgers = read_table(images), conservation.read_ledgers(excluded)
    shards = {
        "cohort": cohort, "frames": frames, "reports": reports, "organs": organs, "anomaly": anomaly,
        "anatomy": anatomy, "boxes": boxes,
    }  # fmt: skip
    shared = conservation.read_shared_flows(every_image, ledgers, shards)
    all_image_ids = conservation.input_image_ids(every_image)
    columns = {splits_table: paper.PAIRS_BY_SPLIT, funnel_table: FUNNEL, conservation_table: CONSERVATION}
    tables: dict[str, list[pl.DataFrame]] = {path: [] for path in columns}
    sums: dict[str, dict[str, int]] = {}
    tallies: dict[str, counts.Tally] = {}
    for name in thresholds:
        tally = tallies[name] = counts.Tally()
        for path in _select_set(lines, name):
            for line in read_lines(path):
                tally.add(line)
        set_studies, with_pairs = _select_set(studies, name), frozenset(tally.images)
        flows = conservation.read_set_flows(shared, ledgers, name, studies=set_studies, with_pairs=with_pairs)
        require_balance(flows)
        set_tables = (
            paper.tabulate_splits(tally.pairs, numbers),
            tabulate_funnel(flows, all_image_ids, with_pairs),
            tabulate_conservation(flows),
        )
        for parts, table in zip(tables.values(), set_tables, strict=True):
            parts.append(table.select(pl.lit(name).alias("thresholds"), pl.all()))
        finding_rows = pl.concat([read_table(path) for path in _select_set(findings, name)])
        num_unedited = sum(int(read_table(path)["unedited"].sum()) for path in set_studies)
        sums[name] = counts.count_by_name(tally, finding_rows, len(all_image_ids), num_unedited)
    for path, parts in tables.items():
        write_table(path, pl.concat(parts), THRESHOLDS | columns[path])
    table = counts.count_table(tallies, sums, global_share, opacity_inference_share, numbers)
    write_table(counts_table, table, counts.count_columns(tallies))


def run_recall(*, sweep: list[str], recall_table: str, sets: list[str]) -> None:
    """Write Table 8 for every threshold set from the shards of the sweep, with one shard in memory at a time."""
    printed = paper.read_paper_tables(RESOURCES / RESOURCE_FILES[0])
    write_table(recall_table, paper.tabulate_recall(map(read_table, sweep), sets, printed), paper.RECALL)


def run_truth(
    *,
    truth_lines: str,
    truth_masks: str,
    reports: list[str],
    findings: list[str],
    masks: list[str],
    truth_table: str,
    thresholds: list[str],
) -> None:
    """Write the measures of the embedded cohort's results against its ground truth, for each threshold set.

    ``findings`` and ``masks`` are in a folder named after their threshold set. The text measures do not depend on
    thresholds and are repeated for each set.
    """
    written = {row["study_id"]: row for row in read_lines(truth_lines)}
    text = truth.text_measures((line for path in reports for line in read_lines(path)), written)
    tables = []
    with Shard(truth_masks) as painted:
        for name in thresholds:
            with Shards(_select_set(masks, name), "mask_id") as shards:
                finding_rows = pl.concat([read_table(path) for path in _select_set(findings, name)])
                measures = truth.mask_measures(finding_rows, partial(shards.get, "mask"), _truth_getter(painted))
            table = truth.tabulate_truth([*measures, *text])
            tables.append(table.select(pl.lit(name).alias("thresholds"), pl.all()))
    write_table(truth_table, pl.concat(tables), THRESHOLDS | truth.TRUTH)


def _select_set(paths: list[str], name: str) -> list[str]:
    return [path for path in paths if Path(path).parent.name == name]


def _truth_getter(painted: Shard) -> Callable[[str], Mapping[str, np.ndarray] | None]:
    return lambda image_id: painted.masks(image_id) if image_id in painted else None
