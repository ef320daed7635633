"""Join the shards of a threshold set: where each mask is, all findings, all exclusions."""

from pathlib import Path

import polars as pl

from cxr.base.hdf5 import Shard
from cxr.base.tables import EXCLUDED, read_table, write_table
from cxr.ils.masks.columns import FINDINGS
from cxr.instructions.mask_index import INDEX, index_table


def run_index(
    *, masks: list[str], findings_parts: list[str], excluded_parts: list[str], index: str, findings: str, excluded: str
) -> None:
    """Write ``index`` (:data:`INDEX`, sorted by mask_id), ``findings`` and ``excluded``, sorted by study."""
    rows = []
    for path in masks:
        with Shard(path, key="mask_id") as shard:
            rows += [(name, Path(path).stem, row) for row, name in enumerate(shard.ids)]
    write_table(index, index_table(rows), INDEX)
    stated = pl.concat(map(read_table, findings_parts)).sort("study_id", "image_id", "finding")
    write_table(findings, stated, FINDINGS)
    write_table(excluded, pl.concat(map(read_table, excluded_parts)).sort("image_id", "study_id"), EXCLUDED)
