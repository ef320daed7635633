"""Bar chart of all runs' scores by source (the paper's Figure 6), next to blind baselines."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure

from cxr.base.tables import read_table
from cxr.plotting.plots import BLUE, GREEN, GREY, ORANGE, save_png

PANELS = {"iou": "mean IoU (%)", "sensitivity": "Semantic Sensitivity (%)"}
COLOURS = (BLUE, ORANGE, GREEN)
TOTAL = "total"
MIN_AXIS_TOP = 10.0
"""Smallest upper end of an axis, %, so that zeros are recognizable."""
HATCHES = ("", "//", "..", "xx", "\\\\")
"""Hatches of the blind baselines that do not depend on the run."""


@dataclass(frozen=True)
class ChartOptions:
    """Resolution of the figure, dots per inch."""

    dpi: int


def run(*, comparison: str, chart: str, options: ChartOptions) -> None:
    """Draw the bars of the table ``comparison`` to ``chart``."""
    save_png(draw_scores(read_table(comparison)), chart, options.dpi)


def draw_scores(table: pl.DataFrame) -> Figure:
    """Return the figure: a panel per measure, a bar per run and blind baseline, with its interval if it has one.

    The paper's models are only in the table, because their sources differ.
    """
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(len(PANELS), 1), PANELS.items(), strict=True):
        part = table.filter(pl.col("table") == name, pl.col("by") != "paper")
        models = (
            part.select("by", "model").unique(maintain_order=True).sort(pl.col("by") == "blind", maintain_order=True)
        )
        sources = sorted(part["source"].unique().to_list(), key=lambda source: (source == TOTAL, source))
        width = 0.84 / max(1, len(models))
        runs = models.filter(by="ours")["model"].to_list()
        for at, (by, model) in enumerate(models.iter_rows()):
            row_by_source = {row["source"]: row for row in part.filter(by=by, model=model).to_dicts()}
            places = [number + (at - (len(models) - 1) / 2) * width for number in range(len(sources))]
            values = [(row_by_source.get(source) or {}).get("value") or 0.0 for source in sources]
            axes.bar(places, values, width, **_bar_style(by, model, runs, at))
            for place, source in zip(places, sources, strict=True):
                row = row_by_source.get(source)
                if row and row["low"] is not None and row["high"] is not None:
                    axes.plot([place, place], [row["low"], row["high"]], color="black", linewidth=0.8)
        counts = {row["source"]: row["number"] for row in part.filter(by="ours").to_dicts()}
        unit = "queries" if name == "iou" else "pairs"
        axes.set_xticks(range(len(sources)), [f"{source}\n{unit}: {counts.get(source, 0)}" for source in sources])
        axes.set_ylabel(label)
        if not part.is_empty() and not any(part["value"].fill_null(0.0)):
            axes.text(0.5, 0.5, "all values are 0", transform=axes.transAxes, ha="center", va="center")
        axes.set_ylim(0, max(MIN_AXIS_TOP, axes.get_ylim()[1]))
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _bar_style(by: str, model: str, runs: Sequence[str], at: int) -> dict:
    """Return a bar's style: runs in their colours, their own blind baselines hatched in the same, others grey."""
    if by == "ours":
        return {"color": COLOURS[runs.index(model) % len(COLOURS)], "label": model}
    label, run = f"blind: {model}", model.partition(": ")[0]
    if run in runs:
        colour = COLOURS[runs.index(run) % len(COLOURS)]
        return {"facecolor": "white", "edgecolor": colour, "hatch": "///", "linewidth": 0.6, "label": label}
    hatch = HATCHES[(at - len(runs)) % len(HATCHES)]
    return {"facecolor": GREY, "edgecolor": "white", "hatch": hatch, "linewidth": 0.0, "label": label}
