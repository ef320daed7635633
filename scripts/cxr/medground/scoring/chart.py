"""Scores of all runs as bars (the paper's Figure 6): by source, runs above answers that read no query."""

from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure

from cxr.base.tables import read_table
from cxr.plotting.plots import BLUE, GREEN, GREY, ORANGE, save

PANELS = {"iou": "mean IoU (%)", "sensitivity": "Semantic Sensitivity (%)"}
COLOURS = (BLUE, ORANGE, GREEN)
TOTAL = "total"


@dataclass(frozen=True)
class ChartOptions:
    """Resolution of the figure, dots per inch."""

    dpi: int


def run(*, comparison: str, chart: str, options: ChartOptions) -> None:
    """Draw the bars of the table ``comparison`` to ``chart``."""
    save(drawn(read_table(comparison)), chart, options.dpi)


def drawn(table: pl.DataFrame) -> Figure:
    """Return the figure: a panel for each measure; a bar for each run and blind answer, its interval where it has one.

    The paper's models are not drawn: their sources are others. They stand in the table.
    """
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(len(PANELS), 1), PANELS.items(), strict=True):
        part = table.filter(pl.col("table") == name, pl.col("by") != "paper")
        models = (
            part.select("by", "model").unique(maintain_order=True).sort(pl.col("by") == "blind", maintain_order=True)
        )
        sources = sorted(part["source"].unique().to_list(), key=lambda one: (one == TOTAL, one))
        width = 0.84 / max(1, len(models))
        runs = models.filter(by="ours")["model"].to_list()
        for at, (by, model) in enumerate(models.iter_rows()):
            held = {row["source"]: row for row in part.filter(by=by, model=model).to_dicts()}
            places = [number + (at - (len(models) - 1) / 2) * width for number in range(len(sources))]
            values = [(held.get(source) or {}).get("value") or 0.0 for source in sources]
            colour = COLOURS[runs.index(model) % len(COLOURS)] if by == "ours" else GREY
            shade = 1.0 if by == "ours" else 0.85 - 0.6 * (at - len(runs)) / max(1, len(models) - len(runs))
            axes.bar(
                places, values, width, color=colour, alpha=shade, label=model if by == "ours" else f"blind: {model}"
            )
            for place, source, value in zip(places, sources, values, strict=True):
                row = held.get(source)
                if row and row["low"] is not None and row["high"] is not None:
                    axes.plot([place, place], [row["low"], row["high"]], color="black", linewidth=0.8)
                del value
        counts = {row["source"]: row["number"] for row in part.filter(by="ours").to_dicts()}
        unit = "queries" if name == "iou" else "pairs"
        axes.set_xticks(range(len(sources)), [f"{source}\n{counts.get(source, 0)} {unit}" for source in sources])
        axes.set_ylabel(label)
        axes.set_ylim(0, None)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure
