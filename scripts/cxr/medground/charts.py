"""Bar charts of MedGround: measures of the queries' language, and the scores of all models (the paper's Figure 6)."""

from collections.abc import Mapping, Sequence
from itertools import product

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxr.base.tables import read_table
from cxr.plotting.plots import BLUE, GREEN, GREY, ORANGE, save_png

MEASURES = {
    "entity_density": "clinical concepts a word",
    "morphology": "queries with a word of\nappearance (%)",
    "spatial": "words of place a query",
}
SPLITS = ("train", "test")
SCORES = {"iou": "mean IoU (%)", "sensitivity": "Semantic Sensitivity (%)"}
RUN_COLOURS = (BLUE, ORANGE, GREEN)
SET_COLOURS = (*RUN_COLOURS, GREY)
TOTAL = "total"
MIN_AXIS_TOP = 10.0  # smallest upper end of an axis of scores, %, so that zeros are recognizable
HATCHES = ("", "//", "..", "xx", "\\\\")  # hatches of the blind baselines that do not depend on the run


def run_language(*, language: str, chart: str, dpi: int) -> None:
    """Draw the table ``language`` as a bar chart, and write the PNG file ``chart`` with ``dpi`` dots per inch."""
    save_png(draw_language(read_table(language)), chart, dpi)


def run_scores(*, comparison: str, chart: str, dpi: int) -> None:
    """Draw the table ``comparison`` as a bar chart, and write the PNG file ``chart`` with ``dpi`` dots per inch."""
    save_png(draw_scores(read_table(comparison)), chart, dpi)


def _draw_bars(axes: Axes, bars: Sequence[tuple[Sequence[Mapping], dict]], spread: float) -> None:
    """Draw groups of bars at x = 0, 1, …, each ``spread`` wide. ``bars`` has (rows, style) for each colour, and
    ``rows`` has {value, low, high} for each group, where ``low`` and ``high`` are the ends of the error bar."""
    width = spread / max(1, len(bars))
    for at, (rows, style) in enumerate(bars):
        places = [group + (at - (len(bars) - 1) / 2) * width for group in range(len(rows))]
        axes.bar(places, [row.get("value") or 0.0 for row in rows], width, **style)
        for place, row in zip(places, rows, strict=True):
            if row.get("low") is not None and row.get("high") is not None:
                axes.plot([place, place], [row["low"], row["high"]], color="black", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def draw_language(table: pl.DataFrame) -> Figure:
    """Return a figure with a row of panels per split, and in it a panel per measure. A panel has a group of bars per
    image domain. Each colour stands for a set of texts: the queries, or a baseline whose texts are class names."""
    domains = [name for name in table["domain"].unique(maintain_order=True) if name != "total"]
    sets = table["set"].unique(maintain_order=True).to_list()
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    panels = figure.subplots(len(SPLITS), len(MEASURES), squeeze=False, sharex=True, sharey="col")
    for axes, (split, (measure, label)) in zip(panels.flat, product(SPLITS, MEASURES.items()), strict=True):
        bars = []
        for at, name in enumerate(sets):
            values = dict(table.filter(split=split, set=name).select("domain", measure).iter_rows())
            style = {"color": SET_COLOURS[at % len(SET_COLOURS)], "label": name}
            bars.append(([{"value": values.get(domain)} for domain in domains], style))
        _draw_bars(axes, bars, 0.8)
        axes.set_xticks(range(len(domains)), domains)
        axes.set_title(f"{split}: {label}", fontsize=9)
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(sets), frameon=False)
    return figure


def draw_scores(table: pl.DataFrame) -> Figure:
    """Return a figure with a panel per measure. Each source has a bar per run (model) and per blind baseline, which
    answers without reading the query. The paper's values are left out, because its sources differ."""
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (name, label) in zip(figure.subplots(len(SCORES), 1), SCORES.items(), strict=True):
        part = table.filter(pl.col("table") == name, pl.col("by") != "paper")
        is_blind = pl.col("by") == "blind"
        models = part.select("by", "model").unique(maintain_order=True).sort(is_blind, maintain_order=True)
        sources = sorted(part["source"].unique().to_list(), key=lambda source: (source == TOTAL, source))
        runs, bars = models.filter(by="ours")["model"].to_list(), []
        for at, (by, model) in enumerate(models.iter_rows()):
            row_by_source = {row["source"]: row for row in part.filter(by=by, model=model).to_dicts()}
            bars.append(([row_by_source.get(source, {}) for source in sources], _bar_style(by, model, runs, at)))
        _draw_bars(axes, bars, 0.84)
        counts = {row["source"]: row["number"] for row in part.filter(by="ours").to_dicts()}
        unit = "queries" if name == "iou" else "pairs"
        axes.set_xticks(range(len(sources)), [f"{source}\n{unit}: {counts.get(source, 0)}" for source in sources])
        axes.set_ylabel(label)
        if not part.is_empty() and not any(part["value"].fill_null(0.0)):
            axes.text(0.5, 0.5, "all values are 0", transform=axes.transAxes, ha="center", va="center")
        axes.set_ylim(0, max(MIN_AXIS_TOP, axes.get_ylim()[1]))
        axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _bar_style(by: str, model: str, runs: Sequence[str], at: int) -> dict:
    if by == "ours":
        return {"color": RUN_COLOURS[runs.index(model) % len(RUN_COLOURS)], "label": model}
    label, run = f"blind: {model}", model.partition(": ")[0]
    if run in runs:
        colour = RUN_COLOURS[runs.index(run) % len(RUN_COLOURS)]
        return {"facecolor": "white", "edgecolor": colour, "hatch": "///", "linewidth": 0.6, "label": label}
    hatch = HATCHES[(at - len(runs)) % len(HATCHES)]
    return {"facecolor": GREY, "edgecolor": "white", "hatch": hatch, "linewidth": 0.0, "label": label}
