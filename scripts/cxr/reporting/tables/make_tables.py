"""The tables stage: write the paper's tables from our results, and check that no image is lost.

Three jobs with separate inputs, so that a missing input delays only its own table: the dataset's counts, recall of all
threshold sets, and, for the embedded cohort, the results against the ground truth.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np
import polars as pl

from cxr.base.hdf5 import Shard, Shards
from cxr.base.paths import RESOURCES, group_by_folder
from cxr.base.tables import THRESHOLDS, read_lines, read_table, write_table
from cxr.reporting.tables import conservation, counts, paper, truth

RESOURCE_FILES = ("paper_tables.yaml",)


def run_counts(
    *,
    images: str,
    excluded: list[str],
    shards: list[str],
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

    ``excluded``: the ledgers of all stages; ``shards``: the files of every stage before the masks, in a folder named
    after it; ``studies``, ``findings`` and ``lines`` are in a folder named after their threshold set; the shares are
    settings of the dataset. Raises StoreError if a stage lost or invented an image.
    """
    numbers = paper.read_paper_tables(RESOURCES / RESOURCE_FILES[0])
    every_image, ledgers = read_table(images), conservation.read_ledgers(excluded)
    shared = conservation.read_shared_flows(every_image, ledgers, group_by_folder(shards))
    lines_by_set, studies_by_set, findings_by_set = map(group_by_folder, (lines, studies, findings))
    all_image_ids = conservation.input_image_ids(every_image)
    columns = {splits_table: paper.PAIRS_BY_SPLIT, funnel_table: conservation.FUNNEL}
    columns |= {conservation_table: conservation.CONSERVATION}
    tables: dict[str, list[pl.DataFrame]] = {path: [] for path in columns}
    sums: dict[str, dict[str, int]] = {}
    tallies: dict[str, counts.Tally] = {}
    for name in thresholds:
        tally = tallies[name] = counts.Tally()
        for path in lines_by_set[name]:
            for line in read_lines(path):
                tally.add(line)
        set_studies, with_pairs = studies_by_set[name], frozenset(tally.images)
        flows = conservation.read_set_flows(shared, ledgers, name, studies=set_studies, with_pairs=with_pairs)
        conservation.require_balance(flows)
        set_tables = (
            paper.tabulate_splits(tally.pairs, numbers),
            conservation.tabulate_funnel(flows, all_image_ids, with_pairs),
            conservation.tabulate_conservation(flows),
        )
        for parts, table in zip(tables.values(), set_tables, strict=True):
            parts.append(table.select(pl.lit(name).alias("thresholds"), pl.all()))
        finding_rows = pl.concat([read_table(path) for path in findings_by_set[name]])
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
    text = list(truth.text_measures((line for path in reports for line in read_lines(path)), written))
    masks_by_set, findings_by_set = group_by_folder(masks), group_by_folder(findings)
    tables = []
    with Shard(truth_masks) as painted:

        def painted_masks(image_id: str) -> Mapping[str, np.ndarray] | None:
            return painted.masks(image_id) if image_id in painted else None

        for name in thresholds:
            with Shards(masks_by_set[name], "mask_id") as shards:
                finding_rows = pl.concat([read_table(path) for path in findings_by_set[name]])
                trials = truth.mask_measures(finding_rows, partial(shards.get, "mask"), painted_masks)
                table = truth.tabulate_truth([*trials, *text])
            tables.append(table.select(pl.lit(name).alias("thresholds"), pl.all()))
    write_table(truth_table, pl.concat(tables), THRESHOLDS | truth.TRUTH)
