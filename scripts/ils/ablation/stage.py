"""The ablation stage: one table of every named threshold set and grid point, from the shards of the sweep."""

from dataclasses import dataclass

from ils.ablation import points
from ils.core.store import read_table, write_table

WANTED = ("thresholds", "study_id", "lesion", "findings", "masks", "grounded", "mask_px")


@dataclass(frozen=True)
class Options:
    """The points by name, which of them are of the grid, and what an interval holds."""

    sets: dict
    grid: list[str]
    interval: float


def run_table(*, sweep: list[str], table: str, options: Options) -> None:
    """Write recall and yield of every point (:func:`ils.ablation.points.table`); one shard is in memory at a time.

    Raises StoreError for a damaged input.
    """
    counted = points.count(read_table(path).select(WANTED) for path in sweep)
    write_table(table, points.table(counted, options.sets, options.grid, options.interval))
