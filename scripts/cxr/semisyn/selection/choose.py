"""Choose one configuration per finding from the scores of all.

Within a finding each metric is scaled so that the worst configuration has 0 and the best 1. A metric with equal values
gives 0.5; one that a configuration lacks is ignored for all. The score is the mean over the metrics. The paper averages
metrics of different scales, one of which is better when lower, without scaling.
"""

from collections.abc import Mapping

import numpy as np
import polars as pl

from cxr.base.columns import Column, schema
from cxr.metrics.intervals import percentile_ends

LOWER_IS_BETTER = ("fid", "kid", "fid_xrv", "kid_xrv", "frechet_lite", "kernel_lite", "c2st")
"""c2st: 0.5 is best, because edited and real boxes are indistinguishable then; lower values count as 0.5."""
SCORES = {
    "finding": Column(pl.String, "Finding."),
    "config": Column(pl.String, "Configuration."),
    "metric": Column(pl.String, "Metric."),
    "value": Column(pl.Float64, "Its value."),
    "normalised": Column(
        pl.Float64, "From 0 for the worst configuration to 1 for the best; null if the metric is ignored."
    ),
    "score": Column(pl.Float64, "Mean of the configuration's normalised metrics; null without any."),
    "rank": Column(pl.Int64, "Rank of the configuration for this finding, from 1."),
    "circular": Column(pl.Boolean, "Whether the metric's scorer learnt from the painter that made the images."),
}
MEASURED_SCHEMA = {
    "finding": pl.String, "config": pl.String, "metric": pl.String, "replicate": pl.Int64, "value": pl.Float64,
    "circular": pl.Boolean,
}  # fmt: skip
"""Values of the metrics: replicate -1 is the value itself, others are bootstrap replicates, shared by all configs."""


def scale_metric(values: np.ndarray, metric: str) -> np.ndarray:
    """Return values of a metric, (configs, replicates), scaled to 0..1 over the configurations, 1 for the best."""
    if metric == "c2st":
        values = np.maximum(values, 0.5)
    low, high = values.min(axis=0), values.max(axis=0)
    span = high - low
    fractions = np.divide(values - low, span, out=np.full(values.shape, 0.5), where=span > 0)
    return np.where(span > 0, 1 - fractions, fractions) if metric in LOWER_IS_BETTER else fractions


def score_table(metric_values: pl.DataFrame, costs: Mapping[str, tuple]) -> pl.DataFrame:
    """Return :data:`SCORES` of :data:`MEASURED_SCHEMA`; ties rank by ``costs``, the cheaper first, then by name."""
    rows = []
    for (finding,), part in metric_values.filter(pl.col("replicate") == -1).group_by("finding", maintain_order=True):
        configs = sorted(set(part["config"]), key=lambda name: (costs[name], name))
        table, complete = _values_by_metric(part, configs, [-1])
        scores = _mean_scaled(table, len(configs))[:, 0]
        order = sorted(range(len(configs)), key=lambda at: -round(scores[at], 12) if np.isfinite(scores[at]) else 1)
        rank = {at: place for place, at in enumerate(order, start=1)}
        normal = {metric: scale_metric(values, metric)[:, 0] for metric, values in table.items()}
        row_by_key = {(row["config"], row["metric"]): row for row in part.iter_rows(named=True)}
        for at, config in enumerate(configs):
            score = float(scores[at]) if np.isfinite(scores[at]) else None
            rows += [
                (finding, config, metric, row_by_key[config, metric]["value"],
                 float(normal[metric][at]) if metric in complete else None, score, rank[at],
                 row_by_key[config, metric]["circular"])
                for metric in sorted(set(part["metric"])) if (config, metric) in row_by_key
            ]  # fmt: skip
    return pl.DataFrame(rows, schema=schema(SCORES), orient="row").sort("finding", "rank", "metric")


def choose_configs(
    metric_values: pl.DataFrame, scores: pl.DataFrame, engines: Mapping[str, str], level: float
) -> dict[str, dict]:
    """Return {finding: {config, engine, score, second, difference, circular}} of the best configuration.

    ``difference``: interval of its score minus the second's, over bootstrap replicates with the same source patients
    for both; None with one configuration or without replicates. ``circular``: metrics whose scorer learnt from the
    painter of its images.
    """
    choice_by_finding = {}
    for (finding,), part in scores.group_by("finding", maintain_order=True):
        ranked = part.unique("config", keep="first").sort("rank")["config"].to_list()
        replicates = metric_values.filter(pl.col("finding") == finding, pl.col("replicate") >= 0)
        difference = None
        if len(ranked) > 1 and len(replicates):
            table, _ = _values_by_metric(replicates, ranked, sorted(set(replicates["replicate"])))
            replicate_scores = _mean_scaled(table, len(ranked))
            low, high = percentile_ends((replicate_scores[0] - replicate_scores[1])[:, None], level)
            difference = [round(float(low[0]), 4), round(float(high[0]), 4)] if np.isfinite(low[0]) else None
        score = part.filter(pl.col("config") == ranked[0])["score"][0]
        choice_by_finding[finding] = {
            "config": ranked[0],
            "engine": engines[ranked[0]],
            "score": None if score is None else round(score, 4),
            "second": ranked[1] if len(ranked) > 1 else None,
            "difference": difference,
            "circular": part.filter(pl.col("config") == ranked[0], "circular")["metric"].to_list(),
        }
    return choice_by_finding


def _values_by_metric(
    part: pl.DataFrame, configs: list[str], replicates: list[int]
) -> tuple[dict[str, np.ndarray], set[str]]:
    """Return {metric: values (configs, replicates)} of the metrics that every configuration has, and their names."""
    place = {name: at for at, name in enumerate(configs)}
    column = {number: at for at, number in enumerate(replicates)}
    values_by_metric = {}
    for (metric,), metric_rows in part.group_by("metric", maintain_order=True):
        values = np.full((len(configs), len(replicates)), np.nan)
        for config, replicate, value in metric_rows.select("config", "replicate", "value").iter_rows():
            values[place[config], column[replicate]] = np.nan if value is None else value
        if np.isfinite(values).any(axis=1).all():
            values_by_metric[metric] = values
    return values_by_metric, set(values_by_metric)


def _mean_scaled(table: Mapping[str, np.ndarray], configs: int) -> np.ndarray:
    """Return the mean of the scaled metrics, (configs, replicates); NaN without a metric."""
    if not table:
        return np.full((configs, 1), np.nan)
    return np.mean([scale_metric(values, metric) for metric, values in table.items()], axis=0)
