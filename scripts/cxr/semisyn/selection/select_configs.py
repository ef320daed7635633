"""Select one configuration for each finding, and write its table and the figures of the search."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl
import yaml
from matplotlib.figure import Figure

from cxr.base.atomic import atomic_file
from cxr.base.columns import Column, schema
from cxr.base.errors import UserError
from cxr.base.jobs import log
from cxr.base.tables import read_table, write_table
from cxr.plotting.palette import LEVELS
from cxr.plotting.plots import BLUE, GREY, save_png
from cxr.semisyn.selection.choose import SCORES, choose_configs, score_table
from cxr.semisyn.shared import INTERVAL

PIPELINE_KEYS = ("engine", "blending")
OTHER_SETTINGS = ("prompt", "steps", "guidance", "strength", "negative")
SOFT = ("blur", "blur_r", "blur_beta")
NOTHING = "No configuration of a search was scored: semisyn.editing.grid.pipelines names none."


def draw_pipelines(points: pl.DataFrame, path: str, dpi: int) -> None:
    """Draw each pipeline's score over its soft masks: the mean as a dot, the range as a line."""
    table = _comparable_points(points)
    at_full = table.filter(pl.col("extent") == table["extent"].max()) if len(table) else table
    figure, axes = _new_figure(bool(len(at_full)))
    names = []
    for number, (name, part) in enumerate(at_full.group_by(PIPELINE_KEYS, maintain_order=True)):
        scores = part["score"]
        axes.plot([number, number], [scores.min(), scores.max()], color=GREY, linewidth=2)
        axes.plot([number], [scores.mean()], color=BLUE, marker="o")
        names.append(f"{_pipeline_name(name)}\n{len(part)} soft masks")
    if names:
        axes.set_xticks(range(len(names)), names)
        axes.set_ylabel("mean score of the findings")
        axes.set_title("Pipelines: mean and range over the soft masks")
    save_png(figure, path, dpi)


def draw_extents(points: pl.DataFrame, path: str, dpi: int) -> None:
    """Draw each pipeline's mean score over the conditioning extents."""
    table = _comparable_points(points)
    figure, axes = _new_figure(bool(len(table)))
    for number, (name, part) in enumerate(table.group_by(PIPELINE_KEYS, maintain_order=True)):
        means = part.group_by("extent").agg(pl.col("score").mean()).sort("extent")
        axes.plot(
            means["extent"],
            means["score"],
            marker="osD^"[number % 4],
            color=LEVELS[number % 4],
            label=_pipeline_name(name),
        )
    if len(table):
        axes.set_xlabel("fraction of the steps in which the mask applies")
        axes.set_ylabel("mean score of the findings")
        axes.set_title("Conditioning extent")
        axes.legend(frameon=False)
    save_png(figure, path, dpi)


def _comparable_points(points: pl.DataFrame) -> pl.DataFrame:
    """Return the scored points whose other settings are the most common ones of their pipeline."""
    scored = points.filter(pl.col("score").is_not_null(), pl.col("engine") != "lite")
    usual_parts = []
    for _, part in scored.group_by(PIPELINE_KEYS, maintain_order=True):
        usual = (
            part.group_by(OTHER_SETTINGS, maintain_order=True).len().sort("len", descending=True, maintain_order=True)
        )
        usual_parts.append(
            part.join(usual.head(1).select(OTHER_SETTINGS), on=list(OTHER_SETTINGS), how="semi", maintain_order="left")
        )
    return pl.concat(usual_parts) if usual_parts else scored


def _pipeline_name(name: tuple) -> str:
    engine, blending = name
    return engine if engine == "radedit" else f"{engine}, {blending}"


def _new_figure(has_points: bool) -> tuple:
    figure = Figure(figsize=(6.5, 4), layout="constrained")
    axes = figure.add_subplot()
    axes.spines[["top", "right"]].set_visible(False)
    if not has_points:
        axes.axis("off")
        axes.text(0.5, 0.5, NOTHING, ha="center", va="center", wrap=True)
    return figure, axes


GRID = {
    "config": Column(pl.String, "Configuration, or point of the grid."),
    "engine": Column(pl.String, "Engine."),
    "blending": Column(pl.String, "How the source is blended in."),
    "prompt": Column(pl.String, "phrase or label."),
    "blur": Column(pl.String, "Soft mask."),
    "blur_r": Column(pl.Float64, "Its r."),
    "blur_beta": Column(pl.Float64, "Its exponent."),
    "extent": Column(pl.Float64, "Fraction of the steps in which the mask applies."),
    "steps": Column(pl.Float64, "Steps, over the model's own."),
    "guidance": Column(pl.Float64, "Weight of the prompt; 0: the model's own."),
    "strength": Column(pl.Float64, "Fraction of the noise levels; 0: the model's own."),
    "negative": Column(pl.String, "Negative prompt."),
    "same_as": Column(pl.String, "Equivalent configuration that is edited instead; empty for none."),
    "score": Column(pl.Float64, "Mean score over the findings; null if it was not scored."),
}
ENGINES = ("lite", "diffusion", "radedit")
"""Engines, the cheapest first."""


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """configs: {name: configuration}; same_as: {name: equivalent configuration that is edited instead}.

    metrics: that enter the score; samples: trial jobs of each finding.
    """

    configs: dict[str, dict]
    same_as: dict[str, str]
    metrics: list[str]
    interval: float = INTERVAL
    samples: int
    dpi: int


def run(
    *, replicates: list[str], choice: str, table: str, grid: str, pipelines: str, extent: str, options: SelectionOptions
) -> None:
    """Choose from the scores of all configurations. ``replicates``: one table per configuration.

    Raises UserError if no configuration has any of the metrics.
    """
    metric_values = pl.concat(read_table(path) for path in replicates).filter(pl.col("metric").is_in(options.metrics))
    if not len(metric_values):
        raise UserError(
            f"no configuration has any of semisyn.selection.metrics ({', '.join(options.metrics)}): name others, or "
            "give references"
        )
    costs = {name: (ENGINES.index(config["engine"]), config["steps"]) for name, config in options.configs.items()}
    scored = score_table(metric_values, costs)
    engines = {name: config["engine"] for name, config in options.configs.items()}
    choice_by_finding = {
        finding: entry | {"samples": options.samples}
        for finding, entry in choose_configs(metric_values, scored, engines, options.interval).items()
    }
    for finding, entry in choice_by_finding.items():
        if entry["circular"]:
            log.warning(
                "%s: %s is chosen by %s too, of a model that learnt from its painter: that says little of its realism",
                finding, entry["config"], ", ".join(entry["circular"]),
            )  # fmt: skip
    with atomic_file(choice) as temporary:
        temporary.write_text(yaml.safe_dump(choice_by_finding, sort_keys=False), encoding="utf-8", newline="\n")
    write_table(table, scored, SCORES)
    points = grid_table(scored, options.configs, options.same_as)
    write_table(grid, points, GRID)
    draw_pipelines(points, pipelines, options.dpi)
    draw_extents(points, extent, options.dpi)


def grid_table(scored: pl.DataFrame, configs: Mapping[str, dict], same_as: Mapping[str, str]) -> pl.DataFrame:
    """Return :data:`GRID`: every configuration with its mean score, or that of its equivalent."""
    means = dict(
        scored.unique(["finding", "config"], keep="first").group_by("config").agg(pl.col("score").mean()).iter_rows()
    )
    rows = []
    for name, config in configs.items():
        substitute = same_as.get(name, "")
        settings = {key: config[key] for key in GRID if key in config}
        rows.append({"config": name, **settings, "same_as": substitute, "score": means.get(substitute or name)})
    return pl.DataFrame(rows, schema=schema(GRID))
