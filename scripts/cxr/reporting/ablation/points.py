"""The ablation stage: recall and yield of each lesion type under many threshold sets.

A *point* is a threshold set that the settings name, or a combination of values from the grid of thresholds. The masks
stage tries every point on every image and writes the results to tables, the *sweep*. A mask is grounded if it confirms
a reported location. Recall is the fraction of the studies stating a lesion that have a grounded mask of the lesion.
Yield is the number of findings with a grounded mask.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt

import polars as pl

from cxr.base.columns import Column, interval_columns, schema
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import LUNG_LESIONS
from cxr.ils.masks.thresholds import EDEMA, GENERAL
from cxr.metrics.intervals import Rate, wilson_interval

AVERAGE = "average"
COVERAGE = 0.95
"""Coverage of the confidence interval of a recall."""
TAUS = ("ano", "anatomy", "conf", "signal", "size")
PARTS = (GENERAL, EDEMA)
SUMS = ("studies", "recalled", "findings", "masks", "yield")


def threshold_column(part: str, tau: str) -> str:
    """Return the column of a threshold: ``conf`` for ("general", "conf"), ``edema_conf`` for ("edema", "conf")."""
    return tau if part == GENERAL else f"{part}_{tau}"


COLUMNS = tuple(threshold_column(part, tau) for part in PARTS for tau in TAUS)
POINTS = {
    "thresholds": Column(pl.String, "Name of the point, as in `results/masks/{thresholds}`."),
    "kind": Column(pl.String, "`set` for a named threshold set, `grid` for a grid point."),
    **{
        threshold_column(part, tau): Column(pl.Float64, f"Threshold `{tau}` for {lesions}.")
        for part, lesions in ((GENERAL, "all lesion types but edema"), (EDEMA, "edema"))
        for tau in TAUS
    },
    "lesion": Column(pl.String, "Lesion type, or `average`."),
    "studies": Column(pl.Int64, "Studies whose report states the lesion."),
    "recalled": Column(pl.Int64, "Of these, studies with a grounded mask of the lesion."),
    "recall": Column(pl.Float64, "`recalled` over `studies` (Table 8).", "%"),
    **interval_columns("recall", "its 95 % interval", "%"),
    "findings": Column(pl.Int64, "Findings that state the lesion."),
    "masks": Column(pl.Int64, "Of these, findings with a mask."),
    "yield": Column(
        pl.Int64,
        "Findings with a grounded mask. Each gives a positive instruction; those with equal texts are merged later.",
    ),
    "median_mask_px": Column(
        pl.Float64, "Median over images of the area of all grounded masks of the lesion; null without one.", "pixels"
    ),
}
SWEEP_COLUMNS = ("thresholds", "study_id", "lesion", "findings", "masks", "grounded", "mask_px")


def run_table(*, sweep: list[str], table: str, sets: dict, grid: list[str]) -> None:
    """Write to ``table`` what :func:`tabulate_points` returns for the results in the files ``sweep``, one per shard."""
    counts = count_sweep(read_table(path).select(SWEEP_COLUMNS) for path in sweep)
    write_table(table, tabulate_points(counts, sets, grid), POINTS)


def count_sweep(sweeps: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the counts :data:`SUMS` per threshold set and lesion type, summed over shards, which share no study.
    ``mask_px`` lists, for each image with grounded masks of the lesion type, the area of their union in pixels."""
    pixels = pl.col("mask_px").list.explode(keep_nulls=False, empty_as_null=False)
    parts = pl.concat(map(_count_shard, sweeps))
    return parts.group_by("thresholds", "lesion").agg(*(pl.col(name).sum() for name in SUMS), pixels)


def _count_shard(sweep: pl.DataFrame) -> pl.DataFrame:
    studies = sweep.group_by("thresholds", "study_id", "lesion").agg(
        pl.col("findings", "masks", "grounded").sum(), pl.col("mask_px").filter(pl.col("grounded") > 0)
    )
    return studies.group_by("thresholds", "lesion").agg(
        pl.len().cast(pl.Int64).alias("studies"),
        (pl.col("grounded") > 0).sum().cast(pl.Int64).alias("recalled"),
        pl.col("findings", "masks").sum(),
        pl.col("grounded").sum().alias("yield"),
        pl.col("mask_px").list.explode(keep_nulls=False, empty_as_null=False),
    )


def tabulate_points(counts: pl.DataFrame, sets: Mapping[str, Mapping], grid: Sequence[str]) -> pl.DataFrame:
    """Return the rows of :data:`POINTS`: for each threshold set of ``sets``, all lesion types and the average.

    ``sets`` is {name: {"general": {tau: value}, "edema": {tau: value}}}, and ``grid`` has the names of the sets that
    combine values of thresholds.grid. The row ``average`` has the unweighted mean recall of the lesion types that
    occur, and the sums of the counts. Lesion types have Wilson intervals with the coverage :data:`COVERAGE`. The
    interval of the average combines the types' half-widths by the root of the sum of squares, separately below and
    above (Newcombe 1998, Zou and Donner 2008). Both intervals assume independent studies and lesion types.
    """
    pixels = pl.col("mask_px").list
    medians = counts.with_columns(pixels.median())
    of_all = counts.group_by("thresholds").agg(pixels.explode(keep_nulls=False, empty_as_null=False).median())
    row_by_point = {(row["thresholds"], row["lesion"]): row for row in medians.iter_rows(named=True)}
    medians_of_all = dict(of_all.iter_rows())
    rows = []
    for name, taus in sets.items():
        point = {"thresholds": name, "kind": "grid" if name in grid else "set"}
        point |= {threshold_column(part, tau): taus[part][tau] for part in PARTS for tau in TAUS}
        nothing = dict.fromkeys(SUMS, 0) | {"mask_px": None}
        cells = [row_by_point.get((name, lesion), nothing) for lesion in LUNG_LESIONS]
        rates = [wilson_interval(cell["recalled"], cell["studies"], COVERAGE) for cell in cells]
        for lesion, cell, rate in zip(LUNG_LESIONS, cells, rates, strict=True):
            rows.append(point | _row(lesion, cell, rate))
        totals = {column: sum(cell[column] for cell in cells) for column in SUMS}
        totals["mask_px"] = medians_of_all.get(name)
        rows.append(point | _row(AVERAGE, totals, mean_rate([rate for rate in rates if rate])))
    return pl.DataFrame(rows, schema=schema(POINTS))


def mean_rate(rates: Sequence[Rate]) -> Rate | None:
    """Return the mean of rates, with an interval from the root of the sum of squared half-widths, or None if empty."""
    if not rates:
        return None
    rate = sum(value for value, _, _ in rates) / len(rates)
    below = sqrt(sum((value - low) ** 2 for value, low, _ in rates)) / len(rates)
    above = sqrt(sum((high - value) ** 2 for value, _, high in rates)) / len(rates)
    return Rate(rate, rate - below, rate + above)


def _row(lesion: str, cell: Mapping, rate: Rate | None) -> dict:
    recall, low, high = (None, None, None) if rate is None else (round(100 * value, 1) for value in rate)
    row = {name: cell[name] for name in SUMS} | {"lesion": lesion, "median_mask_px": cell["mask_px"]}
    return row | {"recall": recall, "recall_low": low, "recall_high": high}
