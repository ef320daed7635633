"""Sum up the time and memory of a run's jobs from Snakemake's benchmark files."""

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cxr.base.columns import Column, schema
from cxr.base.tables import read_table, write_table
from cxr.reporting.page.sections import write_page

RESOURCE_FILES = ("page",)

ORDER = (
    "phantom", "cohort", "frames", "reports", "weights", "organs", "anomaly", "anatomy", "boxes", "masks", "dataset",
    "tables", "figures", "ablation", "paraphrase", "training", "inference", "evaluation", "page",
)  # fmt: skip
"""Stages in running order. Stages that are not listed here come last in a table."""
PER_IMAGE = ("frames", "organs", "anomaly", "anatomy", "boxes")
"""Stages that process image by image."""
JOBS = {
    "stage": Column(pl.String, "Stage."),
    "job": Column(pl.String, "Job, named by its benchmark file in the folder of the stage."),
    "seconds": Column(pl.Float64, "Duration; null for a job too short to measure.", "s"),
    "max_rss_mb": Column(pl.Float64, "Peak memory.", "MB"),
    "cpu_seconds": Column(pl.Float64, "CPU time.", "s"),
}
COSTS = {
    "stage": Column(pl.String, "Stage, or `total`."),
    "jobs": Column(pl.Int64, "Number of jobs."),
    "seconds": Column(pl.Float64, "Total duration of the jobs.", "s"),
    "cpu_seconds": Column(pl.Float64, "Total CPU time of the jobs.", "s"),
    "max_rss_mb": Column(pl.Float64, "Peak memory of the job with the highest peak.", "MB"),
    "images": Column(pl.Int64, "Input images of a stage that processes image by image; null for other stages."),
    "images_per_second": Column(pl.Float64, "`images` over `seconds`, start-up of each job included.", "1/s"),
}


def read_benchmarks(folder: str | Path) -> pl.DataFrame:
    """Read every benchmark file below a folder into rows of :data:`JOBS`, sorted by stage and job.
    The "NA" that Snakemake writes for a job too short to measure becomes null."""
    measures = {"seconds": "s", "max_rss_mb": "max_rss", "cpu_seconds": "cpu_time"}
    tables = [pl.DataFrame(schema=schema(JOBS))]
    for path in sorted(Path(folder).rglob("*.tsv")):
        stage, *job = path.relative_to(folder).with_suffix("").parts
        table = pl.read_csv(path, separator="\t", infer_schema=False)
        cells = {name: pl.col(column).cast(pl.Float64, strict=False) for name, column in measures.items()}
        tables.append(table.select(stage=pl.lit(stage), job=pl.lit("/".join(job)), **cells))
    return pl.concat(tables)


def sum_by_stage(jobs: pl.DataFrame, images: dict[str, int]) -> pl.DataFrame:
    """Return the rows of :data:`COSTS`: one per stage, in running order, and a total.
    ``jobs`` has the rows of :data:`JOBS`. ``images`` is {stage: number of its input images}."""
    sums = (
        pl.len().cast(pl.Int64).alias("jobs"), pl.col("seconds", "cpu_seconds").sum(), pl.col("max_rss_mb").max()
    )  # fmt: skip
    rows = {row["stage"]: row for row in jobs.group_by("stage").agg(sums).iter_rows(named=True)}
    order = [name for name in ORDER if name in rows] + sorted(rows.keys() - set(ORDER))
    cost_rows = [rows[name] for name in order]
    if cost_rows:
        # summed stage by stage, because the order of a sum changes its last digit
        total = {name: sum(row[name] for row in cost_rows) for name in ("jobs", "seconds", "cpu_seconds")}
        cost_rows.append(total | {"stage": "total", "max_rss_mb": jobs["max_rss_mb"].max()})
    for row in cost_rows:
        row["images"] = images.get(row["stage"])
        row["images_per_second"] = row["images"] / row["seconds"] if row["images"] and row["seconds"] else None
        row |= {name: round(value, 2) for name, value in row.items() if isinstance(value, float)}
    return pl.DataFrame(cost_rows, schema=schema(COSTS))


def run(
    *, conservation_table: str, index: str, figures: Sequence[str], costs_table: str, jobs_table: str, page: str,
    synthetic: bool,
) -> None:  # fmt: skip
    """Write the time and memory of the jobs as a table by stage, a table by job, and a page.

    The jobs of this run and of earlier runs are read from the folder ``benchmarks`` beside the file ``index``.
    ``conservation_table`` has the numbers of input images. ``figures`` only make this job run after all others.
    """
    del figures
    jobs = read_benchmarks(Path(index).parent / "benchmarks")
    conservation = read_table(conservation_table).filter(pl.col("stage").is_in(PER_IMAGE)).unique("stage", keep="first")
    table = sum_by_stage(jobs, dict(conservation.select("stage", "input").iter_rows()))
    write_table(jobs_table, jobs, JOBS)
    write_table(costs_table, table, COSTS)
    stages = table.filter(pl.col("stage") != "total")
    slowest = jobs.sort("seconds", "job", descending=[True, False]).head(10).to_dicts()
    most = {"seconds_most": stages["seconds"].max() or 1, "memory_most": stages["max_rss_mb"].max() or 1}
    write_page(page, "costs.html.j2", rows=table.to_dicts(), slowest=slowest, synthetic=synthetic, **most)
