"""Draw the score of each pipeline over the soft masks and over the conditioning extents (the paper's Figures 4, 5).

Only configurations that differ from their pipeline in the soft mask or the extent alone are drawn.
"""

import polars as pl
from matplotlib.figure import Figure

from cxr.plotting.palette import LEVELS
from cxr.plotting.plots import BLUE, GREY, save_png

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
