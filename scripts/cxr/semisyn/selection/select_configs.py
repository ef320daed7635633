"""Select the best editing configuration for each finding. Write a table of scores and the figures of the search."""

from collections.abc import Mapping

import numpy as np
import polars as pl
import yaml
from matplotlib.figure import Figure

from cxr.base.atomic import atomic_file
from cxr.base.columns import read_columns, schema
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.tables import read_tables, write_table
from cxr.metrics.intervals import percentile_ends
from cxr.plotting.panels import LEVELS
from cxr.plotting.plots import BLUE, GREY, save_png
from cxr.semisyn.shared import BLURS, INTERVAL

LOWER_IS_BETTER = ("fid", "kid", "fid_xrv", "kid_xrv", "frechet_lite", "kernel_lite", "c2st")
"""Metrics whose low values are good. c2st is best at 0.5, where boxes look real; lower values count as 0.5."""
RESOURCE_FILES = ("columns/semisyn_selection.toml",)
SCORES = read_columns("semisyn_selection", "scores")
MEASURED_SCHEMA = {
    "finding": pl.String, "config": pl.String, "metric": pl.String, "replicate": pl.Int64, "value": pl.Float64,
    "circular": pl.Boolean,
}  # fmt: skip
"""Columns of the metrics' values. Replicate -1 is the value itself; those from 0 on are bootstrap draws."""


def scale_metric(values: np.ndarray, metric: str) -> np.ndarray:
    """Return ``values`` (configs, replicates), scaled in each replicate from 0 (worst configuration) to 1 (best)."""
    if metric == "c2st":
        values = np.maximum(values, 0.5)
    low, high = values.min(axis=0), values.max(axis=0)
    span = high - low
    fractions = np.divide(values - low, span, out=np.full(values.shape, 0.5), where=span > 0)
    return np.where(span > 0, 1 - fractions, fractions) if metric in LOWER_IS_BETTER else fractions


def score_table(metric_values: pl.DataFrame, costs: Mapping[str, tuple]) -> pl.DataFrame:
    """Return :data:`SCORES`, which ranks a finding's configurations by score, then lowest ``costs``, then name."""
    rows = []
    for (finding,), part in metric_values.filter(pl.col("replicate") == -1).group_by("finding", maintain_order=True):
        configs = sorted(set(part["config"]), key=lambda name: (costs[name], name))
        scaled = _scale_metrics(part, configs, [-1])
        means = dict(zip(configs, _mean_metric(scaled, len(configs))[:, 0].tolist(), strict=True))
        order = sorted(configs, key=lambda name: -round(means[name], 12) if np.isfinite(means[name]) else 1)
        for config, metric, value, circular in part.select("config", "metric", "value", "circular").iter_rows():
            normalised = float(scaled[metric][configs.index(config), 0]) if metric in scaled else None
            score = means[config] if np.isfinite(means[config]) else None
            rows.append((finding, config, metric, value, normalised, score, order.index(config) + 1, circular))
    return pl.DataFrame(rows, schema=schema(SCORES), orient="row").sort("finding", "rank", "metric")


def choose_configs(
    metric_values: pl.DataFrame, scores: pl.DataFrame, engines: Mapping[str, str], level: float
) -> dict[str, dict]:
    """Return {finding: {config, engine, score, second, difference, circular}} of the best configuration. second: next
    best; difference: confidence interval of the best minus the second score; circular: metrics whose model learnt from
    painted lesions, if the best configuration paints too."""
    choice_by_finding = {}
    for (finding,), part in scores.group_by("finding", maintain_order=True):
        ranked = part.unique("config", keep="first").sort("rank")["config"].to_list()
        replicates = metric_values.filter(pl.col("finding") == finding, pl.col("replicate") >= 0)
        difference = None
        if len(ranked) > 1 and len(replicates):
            scaled = _scale_metrics(replicates, ranked, sorted(set(replicates["replicate"])))
            replicate_scores = _mean_metric(scaled, len(ranked))
            low, high = percentile_ends((replicate_scores[0] - replicate_scores[1])[:, None], level)
            difference = [round(float(low[0]), 4), round(float(high[0]), 4)] if np.isfinite(low[0]) else None
        best = part.filter(pl.col("config") == ranked[0])
        choice_by_finding[finding] = {
            "config": ranked[0],
            "engine": engines[ranked[0]],
            "score": None if best["score"][0] is None else round(best["score"][0], 4),
            "second": ranked[1] if len(ranked) > 1 else None,
            "difference": difference,
            "circular": best.filter("circular")["metric"].to_list(),
        }
    return choice_by_finding


def _scale_metrics(part: pl.DataFrame, configs: list[str], replicates: list[int]) -> dict[str, np.ndarray]:
    """Return {metric: scaled values (configs, replicates)} of the metrics that every configuration has."""
    scaled = {}
    for (metric,), metric_rows in part.group_by("metric", maintain_order=True):
        values = np.full((len(configs), len(replicates)), np.nan)
        for config, replicate, value in metric_rows.select("config", "replicate", "value").iter_rows():
            values[configs.index(config), replicates.index(replicate)] = np.nan if value is None else value
        if np.isfinite(values).any(axis=1).all():
            scaled[metric] = scale_metric(values, metric)
    return scaled


def _mean_metric(scaled: Mapping[str, np.ndarray], configs: int) -> np.ndarray:
    """Return the mean of the ``scaled`` metrics, (configs, replicates), or NaN if no metric was scored."""
    return np.mean(list(scaled.values()), axis=0) if scaled else np.full((configs, 1), np.nan)


OTHER_SETTINGS = ("prompt", "steps", "guidance", "strength", "negative")
NOTHING = "No configuration of a grid search was scored. Name pipelines in semisyn.editing.grid.pipelines."


def draw_search(points: pl.DataFrame, pipelines: str, extent: str, dpi: int) -> None:
    """Draw two figures of a search's ``points``, a table of :data:`GRID`. The file ``pipelines`` shows mean and
    range of each pipeline's scores over the soft masks at the largest extent, the file ``extent`` its mean score by
    extent. Only points with the pipeline's most common values of :data:`OTHER_SETTINGS` are drawn."""
    scored, parts = points.filter(pl.col("score").is_not_null(), pl.col("engine") != "lite"), {}
    for (engine, blending), part in scored.group_by("engine", "blending", maintain_order=True):
        counts = part.group_by(OTHER_SETTINGS, maintain_order=True).len()
        usual = counts.sort("len", descending=True, maintain_order=True).head(1).select(OTHER_SETTINGS)
        name = engine if engine == "radedit" else f"{engine}, {blending}"
        parts[name] = part.join(usual, on=list(OTHER_SETTINGS), how="semi", maintain_order="left")
    figure, axes = _new_figure(len(parts), "Pipelines: mean and range over the soft masks")
    full, names = max((part["extent"].max() for part in parts.values()), default=1.0), []
    for name, part in parts.items():
        scores = part.filter(extent=full)["score"]
        if len(scores):
            axes.plot([len(names)] * 2, [scores.min(), scores.max()], color=GREY, linewidth=2)
            axes.plot([len(names)], [scores.mean()], color=BLUE, marker="o")
            names.append(f"{name}\n{len(scores)} soft masks")
    if names:
        axes.set_xticks(range(len(names)), names)
    save_png(figure, pipelines, dpi)
    figure, axes = _new_figure(len(parts), "Conditioning extent")
    for number, (name, part) in enumerate(parts.items()):
        means = part.group_by("extent").agg(pl.col("score").mean()).sort("extent")
        style = {"marker": "osD^"[number % 4], "color": LEVELS[number % 4]}
        axes.plot(means["extent"], means["score"], label=name, **style)
    if parts:
        axes.set_xlabel("fraction of the steps in which the mask applies")
        axes.legend(frameon=False)
    save_png(figure, extent, dpi)


def _new_figure(num_parts: int, title: str) -> tuple:
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    if num_parts:
        axes.set_ylabel("mean score of the findings")
        axes.set_title(title)
    else:
        axes.axis("off")
        axes.text(0.5, 0.5, NOTHING, ha="center", va="center", wrap=True)
    return figure, axes


GRID = read_columns("semisyn_selection", "grid")
ENGINES = ("lite", "diffusion", "radedit")
"""Editing engines, the cheapest first."""


def run(
    *, replicates: list[str], choice: str, table: str, grid: str, pipelines: str, extent: str, configs: dict[str, dict],
    same_as: dict[str, str], metrics: list[str], samples: int, dpi: int,
) -> None:  # fmt: skip
    """Choose a configuration for each finding, and write all files. ``replicates``: score tables; ``same_as``: {name:
    configuration that makes the same images and is scored instead}. Raise UserError if no file has the ``metrics``."""
    metric_values = read_tables(replicates).filter(pl.col("metric").is_in(metrics))
    if not len(metric_values):
        raise UserError(f"no configuration has any of semisyn.selection.metrics ({', '.join(metrics)}): name others")
    costs = {name: (ENGINES.index(config["engine"]), config["steps"]) for name, config in configs.items()}
    scored = score_table(metric_values, costs)
    engines = {name: config["engine"] for name, config in configs.items()}
    choice_by_finding = choose_configs(metric_values, scored, engines, INTERVAL)
    for finding, entry in choice_by_finding.items():
        entry["samples"] = samples
        if entry["circular"]:
            log.warning(
                "%s: %s was chosen partly by %s, whose model learnt painted lesions: this says little of realism",
                finding, entry["config"], ", ".join(entry["circular"]),
            )  # fmt: skip
    with atomic_file(choice) as temporary:
        temporary.write_text(yaml.safe_dump(choice_by_finding, sort_keys=False), encoding="utf-8", newline="\n")
    write_table(table, scored, SCORES)
    scores, rows = scored.unique(["finding", "config"], keep="first"), []
    means = dict(scores.group_by("config").agg(pl.col("score").mean()).iter_rows())
    for name, config in configs.items():
        substitute = same_as.get(name, "")
        settings = {key: config[key] for key in GRID if key in config}
        settings |= dict(zip(("blur", "blur_r", "blur_beta"), BLURS[config["blur"]], strict=True))
        rows.append({"config": name, **settings, "same_as": substitute, "score": means.get(substitute or name)})
    points = pl.DataFrame(rows, schema=schema(GRID))
    write_table(grid, points, GRID)
    draw_search(points, pipelines, extent, dpi)
