"""The ablation stage: tabulate every named threshold set and grid point from the shards of the sweep."""

from dataclasses import dataclass

from cxr.base.tables import read_table, write_table
from cxr.reporting.ablation import points

WANTED = ("thresholds", "study_id", "lesion", "findings", "masks", "grounded", "mask_px")


@dataclass(frozen=True)
class AblationOptions:
    """The points by name, which of them belong to the grid, and the coverage of an interval."""

    sets: dict
    grid: list[str]
    interval: float


def run_table(*, sweep: list[str], table: str, options: AblationOptions) -> None:
    """Write recall and yield of every point (:func:`cxr.reporting.ablation.points.table`), with one shard in memory.

    Raises StoreError for a damaged input.
    """
    counts = points.count(read_table(path).select(WANTED) for path in sweep)
    write_table(table, points.table(counts, options.sets, options.grid, options.interval), points.POINTS)
