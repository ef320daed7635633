"""Join the shards of a threshold set: where each mask is, all findings, all exclusions."""

from pathlib import Path

import polars as pl

from cxr.base.columns import schema
from cxr.base.hdf5 import Shard
from cxr.base.tables import read_table, write_table
from cxr.ils.masks import columns


def run_index(
    *, masks: list[str], findings_parts: list[str], excluded_parts: list[str], index: str, findings: str, excluded: str
) -> None:
    """Write ``index`` (:data:`columns.INDEX`, sorted by mask_id), ``findings`` and ``excluded``, sorted by study."""
    rows = []
    for path in masks:
        with Shard(path, key="mask_id") as shard:
            rows += [{"mask_id": name, "shard": Path(path).stem, "row": row} for row, name in enumerate(shard.ids)]
    write_table(index, pl.DataFrame(rows, schema=schema(columns.INDEX)).sort("mask_id"))
    write_table(findings, pl.concat(map(read_table, findings_parts)).sort("study_id", "image_id", "finding"))
    write_table(excluded, pl.concat(map(read_table, excluded_parts)).sort("image_id", "study_id"))
