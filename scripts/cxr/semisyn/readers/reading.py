"""Statistics of the readings: how often an X-ray was called real and its finding named (Table 7), and agreement.

Intervals resample images, with all readings of an image together.
"""

from statistics import NormalDist

import numpy as np
import polars as pl
import yaml

from cxr.base.columns import Column, schema
from cxr.base.paths import RESOURCES
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_table, write_table
from cxr.base.vocabulary import FINDINGS
from cxr.metrics.intervals import draw_weights, percentile_ends, ratio_intervals
from cxr.metrics.raters import agreement_columns, measure_agreement
from cxr.semisyn.readers.settings import SEED
from cxr.semisyn.shared import INTERVAL

RESOURCE_FILES = ("semisyn/paper_tables.yaml",)
GENERATED, REAL = "generated", "real"
MEAN, ALL = "mean", "all"
TABLE7 = {
    "source": Column(pl.String, "generated or real."),
    "finding": Column(pl.String, "Finding of the images, or `mean` over the findings."),
    "images": Column(pl.Int64, "Images."),
    "answers": Column(pl.Int64, "Readings of them."),
    "as_real": Column(pl.Float64, "Readings that called the image real.", "%"),
    "as_real_low": Column(pl.Float64, "Lower end of its interval, by images.", "%"),
    "as_real_high": Column(pl.Float64, "Upper end.", "%"),
    "as_real_paper": Column(pl.Float64, "The paper's value.", "%"),
    "with_finding": Column(pl.Float64, "Readings that named the image's finding.", "%"),
    "with_finding_low": Column(pl.Float64, "Lower end of its interval, by images.", "%"),
    "with_finding_high": Column(pl.Float64, "Upper end.", "%"),
    "with_finding_paper": Column(pl.Float64, "The paper's value.", "%"),
}
AGREEMENT = {
    "finding": Column(pl.String, "Finding of the images, or `all`."),
    "measure": Column(pl.String, "as_real: called it real; with_finding: named its finding."),
    "readers": Column(pl.Int64, "Readers."),
    "images": Column(pl.Int64, "Images that all of them read."),
    "percent": Column(pl.Float64, "Pairs of readers who agree.", "%"),
    **agreement_columns(", by images"),
    "d_prime": Column(pl.Float64, "Discrimination of generated and real images, 0 for chance; null for with_finding."),
    "d_prime_low": Column(pl.Float64, "Lower end of its interval, by images."),
    "d_prime_high": Column(pl.Float64, "Upper end."),
}
MEASURES = ("as_real", "with_finding")
READINGS = {
    "unit": pl.String, "source": pl.String, "finding": pl.String, "readings": pl.Int64, "as_real": pl.Int64,
    "with_finding": pl.Int64,
}  # fmt: skip
"""One row per image: its readings, and how many called it real or named its finding."""


def count_readings(units: pl.DataFrame, answers: pl.DataFrame) -> pl.DataFrame:
    """Return :data:`READINGS`; ``units``: unit, source, finding; ``answers``: unit, expert, question, answer.

    The form asks two questions: ``origin`` (real or generated) and ``finding``, which may be one of the user's.
    """
    answer_rows = answers.with_columns(pl.concat_str(pl.lit("said_"), "question").alias("question"))
    wide = answer_rows.pivot("question", index=["unit", "expert"], values="answer").join(units, on="unit")
    counts = wide.group_by("unit", "source", "finding").agg(
        pl.len().cast(pl.Int64).alias("readings"),
        (pl.col("said_origin") == REAL).sum().cast(pl.Int64).alias("as_real"),
        (pl.col("said_finding") == pl.col("finding")).sum().cast(pl.Int64).alias("with_finding"),
    )
    return counts.select(list(READINGS)).sort("unit")


def make_table7(
    reading_table: pl.DataFrame, printed: dict, *, replicates: int, level: float, seed: int
) -> pl.DataFrame:
    """Return Table 7 of :data:`READINGS`. ``printed``: the paper's {source_measure: fractions per finding, mean}."""
    rows, unprinted = [], [None] * (len(FINDINGS) + 1)
    for source in (GENERATED, REAL):
        of_source = reading_table.filter(pl.col("source") == source)
        for finding in (*_findings(reading_table), MEAN):
            part = of_source if finding == MEAN else of_source.filter(pl.col("finding") == finding)
            row = {"source": source, "finding": finding, "images": len(part), "answers": int(part["readings"].sum())}
            for measure in MEASURES:
                row |= _rate(part, measure, replicates, level, seed)
                values = printed.get(f"{source}_{measure}", unprinted)
                paper = dict(zip((*FINDINGS, MEAN), values, strict=True)).get(finding)
                row[f"{measure}_paper"] = None if paper is None else round(100 * paper, 3)
            rows.append(row)
    return pl.DataFrame(rows, schema=schema(TABLE7))


def _findings(reading_table: pl.DataFrame) -> list[str]:
    """Return the paper's findings, followed by the user's findings that have images."""
    return [*FINDINGS, *sorted(set(reading_table["finding"]) - set(FINDINGS))]


def _rate(part: pl.DataFrame, measure: str, replicates: int, level: float, seed: int) -> dict:
    positives, num_readings = (part[name].to_numpy().astype(float)[:, None] for name in (measure, "readings"))
    if not len(part):
        return dict.fromkeys((measure, f"{measure}_low", f"{measure}_high"))
    low, high = ratio_intervals(positives, num_readings, replicates=replicates, level=level, seed=seed)
    values = (positives.sum() / num_readings.sum(), low[0], high[0])
    names = (measure, f"{measure}_low", f"{measure}_high")
    return {name: _percent(value) for name, value in zip(names, values, strict=True)}


def agreement_table(
    reading_table: pl.DataFrame, readers: int, *, replicates: int, level: float, seed: int
) -> pl.DataFrame:
    """Return the agreement on images that all readers read, and d' of telling generated from real images."""
    bootstrap = {"replicates": replicates, "level": level, "seed": seed}
    of_all = reading_table.filter(pl.col("readings") == readers)
    rows = []
    for finding in (*_findings(reading_table), ALL):
        part = of_all if finding == ALL else of_all.filter(pl.col("finding") == finding)
        for measure in MEASURES:
            statistics = measure_agreement(part[measure].to_numpy(), readers, part["unit"].to_numpy(), **bootstrap)
            d_prime_values = d_prime(part, **bootstrap) if measure == "as_real" else (None, None, None)
            percent = None if statistics.percent is None else round(100 * statistics.percent, 3)
            values = (statistics.kappa, *statistics.kappa_interval, statistics.ac1, *statistics.ac1_interval)
            rounded = (None if value is None else round(value, 4) for value in (*values, *d_prime_values))
            rows.append((finding, measure, readers, statistics.units, percent, *rounded))
    return pl.DataFrame(rows, schema=schema(AGREEMENT), orient="row")


def d_prime(reading_table: pl.DataFrame, *, replicates: int, level: float, seed: int) -> tuple[float | None, ...]:
    """Return d' of telling generated images from real ones, and the ends of its interval; None without both kinds.

    d' = z(fraction of generated images called generated) - z(fraction of real images called generated). Half a reading
    is added to each count and one to each total, so that fractions of 0 and 1 have a finite z.
    """
    kinds = [reading_table.filter(pl.col("source") == source) for source in (GENERATED, REAL)]
    if not all(map(len, kinds)):
        return None, None, None
    sums = [np.stack([part["readings"] - part["as_real"], part["readings"]], axis=1).astype(float) for part in kinds]
    replicate_sums = [
        np.concatenate([weight @ values for weight in draw_weights(len(values), replicates, stable_hash(seed, number))])
        if replicates else np.empty((0, 2))
        for number, values in enumerate(sums)
    ]  # fmt: skip
    values = [_z(draws[:, 0], draws[:, 1]) for draws in replicate_sums]
    low, high = percentile_ends((values[0] - values[1])[:, None], level)
    z_values = [_z(*values.sum(axis=0)[:, None])[0] for values in sums]
    return float(z_values[0] - z_values[1]), *(None if np.isnan(end[0]) else float(end[0]) for end in (low, high))


def _z(counts: np.ndarray, totals: np.ndarray) -> np.ndarray:
    return np.array([NormalDist().inv_cdf(share) for share in (counts + 0.5) / (totals + 1)])


def _percent(value: float) -> float | None:
    return None if np.isnan(value) else round(100 * float(value), 3)


def run(*, units: str, answers: str, table7: str, agreement: str, readers: int, replicates: int) -> None:
    """Write ``table7``, with the paper's values, and ``agreement``; ``units``: what each image is.

    ``readers``: their number; ``replicates``: of the bootstrap by images.
    """
    reading_table = count_readings(read_table(units), read_table(answers))
    printed = yaml.safe_load((RESOURCES / RESOURCE_FILES[0]).read_text(encoding="utf-8"))["table7"]
    bootstrap = {"replicates": replicates, "level": INTERVAL, "seed": SEED}
    write_table(table7, make_table7(reading_table, printed, **bootstrap), TABLE7)
    write_table(agreement, agreement_table(reading_table, readers, **bootstrap), AGREEMENT)
