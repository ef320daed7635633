"""Read the paper's Tables 1, 2 and 4, and write ours in the same form with the paper's rows below."""

from collections.abc import Mapping
from functools import cache

import polars as pl
import yaml

from cxr.base.columns import Column, schema
from cxr.base.paths import RESOURCES
from cxr.base.tables import write_table
from cxr.base.vocabulary import FINDINGS
from cxr.semisyn.detection.measures import MEAN
from cxr.semisyn.references import Reference

SCORES = {
    "run": Column(pl.String, "Run, or the paper's detector and number of synthetic images."),
    "seed": Column(pl.Int64, "Seed, in the order of the run's files; null for the mean over seeds."),
    "reference": Column(pl.String, "Reference that the run is scored against."),
    "finding": Column(pl.String, "Finding, or `mean` over those with reference boxes."),
    "metric": Column(pl.String, "ap1070 and ap30, ap50_sample, recall at 1/4, 1/2, 1 and 2 false boxes an image."),
    "value": Column(pl.Float64, "Value.", "%"),
    "low": Column(pl.Float64, "Lower end of the interval, by patients; null where there is none.", "%"),
    "high": Column(pl.Float64, "Upper end.", "%"),
    "images": Column(pl.Int64, "Images of the reference."),
    "boxes": Column(pl.Int64, "Reference boxes."),
    "patients": Column(pl.Int64, "Patients of the images."),
    "prior_seen_reference": Column(pl.Boolean, "Whether the synthetic boxes' priors were fitted to it."),
    "source": Column(pl.String, "`ours` or `paper`."),
}
DIFFERENCES = {
    "reference": Column(pl.String, "Reference."),
    "run": Column(pl.String, "Run."),
    "against": Column(pl.String, "Run that it is compared with."),
    "finding": Column(pl.String, "Finding, or `mean`."),
    "metric": Column(pl.String, "Metric."),
    "difference": Column(pl.Float64, "Value of `run` minus that of `against`, means over seeds.", "points"),
    "low": Column(pl.Float64, "Lower end of its interval: paired draws of patients.", "points"),
    "high": Column(pl.Float64, "Upper end.", "points"),
    "significant": Column(pl.Boolean, "Whether the interval excludes 0."),
    "share_below_zero": Column(pl.Float64, "Fraction of the draws below 0; one of exactly 0 counts half."),
    "holm": Column(pl.Float64, "Holm's p over all comparisons of this table with this reference and metric."),
    **{
        f"paper_p_{kind}_{count}": Column(
            pl.Float64,
            f"The paper's test, Wilcoxon on {count} {kind} replicates. No evidence: without any difference it rejects "
            "in nearly half of all experiments.",
        )
        for count in (100, 1000)
        for kind in ("random", "stratified")
    },
    "seeds": Column(pl.Int64, "Seeds of the run that has fewer."),
    "seed_range": Column(pl.String, "Lowest and highest value of `run` over its seeds, in percent."),
}
TABLE_1 = {
    "source": Column(pl.String, "`ours` or `paper`."),
    "run": Column(pl.String, "Run; the paper's detector."),
    "synthetic": Column(pl.Int64, "Synthetic training images; null if the run does not state them."),
    "reference": Column(pl.String, "Reference."),
    "map1070": Column(pl.Float64, "Mean AP over IoU .1 to .7 and over findings.", "%"),
    "map30": Column(pl.Float64, "Mean AP at IoU .3.", "%"),
}


RESOURCE_FILES = ("semisyn/paper_tables.yaml",)
OURS, PAPER = "ours", "paper"
BY_FINDING = {name: TABLE_1[name] for name in ("source", "run", "synthetic", "reference")} | {
    name: Column(pl.Float64, f"AP over IoU .1 to .7: {label.lower()}.", "%")
    for name, label in {**FINDINGS, MEAN: "mean over the findings with true boxes"}.items()
}
"""Columns of Tables 2 and 4."""


@cache
def read_paper_tables() -> dict:
    """Return the tables printed in the paper."""
    return yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))


def _table_rows(name: str) -> list[tuple[str, int, list]]:
    return [
        (run, size, cells) for run, sizes in read_paper_tables()[name]["rows"].items() for size, cells in sizes.items()
    ]


def paper_scores() -> pl.DataFrame:
    """Return the paper's values in the columns of :data:`SCORES`."""
    rows = []
    for name in ("table2", "table4"):
        reference = read_paper_tables()[name]["format"]
        for run, size, cells in _table_rows(name):
            for finding, value in zip([*read_paper_tables()["findings"], MEAN], cells, strict=True):
                if value is not None:
                    metric = "map1070" if finding == MEAN else "ap1070"
                    row_key = {"run": f"{run} +{size}", "reference": reference, "finding": finding, "metric": metric}
                    rows.append(dict.fromkeys(SCORES) | row_key | {"value": value, "source": PAPER})
    return pl.DataFrame(rows, schema=schema(SCORES), orient="row")


def write_tables(
    table: pl.DataFrame, references: Mapping[str, Reference], synthetic: Mapping[str, int], paths: tuple[str, str, str]
) -> None:
    """Write Tables 1, 2 and 4 to ``paths``. Table 4 has the references in VinDr's format, Table 2 all others.

    ``table``: our scores; ``synthetic``: {run: number of synthetic images}.
    """
    ours = table.filter(pl.col("seed").is_null())
    table1_rows, rows_by_table = [], {"table2": [], "table4": []}
    for run, name in ours.select("run", "reference").unique(maintain_order=True).iter_rows():
        rows = ours.filter(pl.col("run") == run, pl.col("reference") == name)
        values = {(f, m): v for f, m, v in rows.select("finding", "metric", "value").iter_rows()}
        head = {"source": OURS, "run": run, "synthetic": synthetic.get(run), "reference": name}
        table1_rows.append(head | {metric: values.get((MEAN, metric)) for metric in ("map1070", "map30")})
        cells = {finding: values.get((finding, "ap1070")) for finding in FINDINGS} | {
            MEAN: values.get((MEAN, "map1070"))
        }
        is_table4 = references[name].format == read_paper_tables()["table4"]["format"]
        rows_by_table["table4" if is_table4 else "table2"].append(head | cells)
    for run, size, cells in _table_rows("table1"):
        for name, pair in (("vindr", cells[:2]), ("ms_cxr", cells[2:])):
            head = {"source": PAPER, "run": run, "synthetic": size, "reference": name}
            table1_rows.append(head | dict(zip(("map1070", "map30"), pair, strict=True)))
    findings = [*read_paper_tables()["findings"], MEAN]
    for name in rows_by_table:
        head = {"source": PAPER, "reference": read_paper_tables()[name]["format"]}
        for run, size, cells in _table_rows(name):
            rows_by_table[name].append(head | {"run": run, "synthetic": size} | dict(zip(findings, cells, strict=True)))
    all_rows = (table1_rows, *rows_by_table.values())
    for path, rows, columns in zip(paths, all_rows, (TABLE_1, BY_FINDING, BY_FINDING), strict=True):
        write_table(path, pl.DataFrame(rows, schema=schema(columns), orient="row"), columns)
