"""Draw the mean AP of each run with its interval, and the recall over the false boxes per image."""

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxr.base.tables import read_table
from cxr.plotting.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, save_png
from cxr.semisyn.detection.paper_tables import MEAN, OURS
from cxr.semisyn.detection.score_detections import FALSE_BOXES

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, GREY)
MARKS = "osv^D*P"


def run_charts(*, scores: str, curves: str, dpi: int, against: str) -> None:
    """Draw the scores of all runs to ``curves``, one row of panels for each reference; ``against`` is black."""
    table = read_table(scores).filter(pl.col("source") == OURS, pl.col("finding") == MEAN)
    references = table["reference"].unique(maintain_order=True).to_list()
    runs = table["run"].unique(maintain_order=True).to_list()
    colours = {run: BLACK if run == against else COLOURS[place % len(COLOURS)] for place, run in enumerate(runs)}
    figure = Figure(figsize=(10, 0.8 + len(references) * (1.6 + 0.25 * len(runs))), layout="constrained")
    grid = figure.subplots(len(references), 2, squeeze=False)
    for row, name in zip(grid, references, strict=True):
        reference_rows = table.filter(pl.col("reference") == name)
        _draw_intervals(row[0], reference_rows, runs, colours)
        _draw_recalls(row[1], reference_rows, runs, colours)
        images, boxes, patients = reference_rows.select("images", "boxes", "patients").row(0)
        row[0].set_title(f"{name}: {images} images, {boxes} boxes, {patients} patients", fontsize=10)
    grid[-1][1].legend(fontsize=8, loc="lower right")
    save_png(figure, curves, dpi)


def _draw_intervals(axes: Axes, table: pl.DataFrame, runs: Sequence[str], colours: dict[str, str]) -> None:
    """Draw the mean over seeds with its interval, and each seed as a bar."""
    ap = table.filter(pl.col("metric").str.starts_with("map"), pl.col("low").is_not_null())
    metric = ap["metric"][0] if len(ap) else ""
    for place, run in enumerate(runs):
        run_rows = ap.filter(pl.col("run") == run, pl.col("metric") == metric)
        for value, low, high, seed in run_rows.select("value", "low", "high", "seed").iter_rows():
            if seed is None:
                axes.plot([low, high], [place, place], color=colours[run], linewidth=2)
                axes.plot(value, place, "o", color=colours[run], markersize=7)
            else:
                axes.plot(value, place, "|", color=colours[run], markersize=12)
    axes.set_yticks(range(len(runs)), runs)
    axes.invert_yaxis()
    axes.set_xlabel(f"{metric}, % (interval by patients; bars: seeds)")
    axes.grid(axis="x", alpha=0.3)


def _draw_recalls(axes: Axes, table: pl.DataFrame, runs: Sequence[str], colours: dict[str, str]) -> None:
    for place, run in enumerate(runs):
        run_rows = table.filter(pl.col("run") == run, pl.col("metric").is_in([*FALSE_BOXES]))
        means = dict(run_rows.group_by("metric").agg(pl.col("value").mean()).iter_rows())
        points = [(false, means[name]) for name, false in FALSE_BOXES.items() if name in means]
        if points:
            mark = MARKS[place % len(MARKS)]
            axes.plot(*zip(*points, strict=True), marker=mark, color=colours[run], label=run, linewidth=1.2)
    axes.set_xscale("log", base=2)
    axes.set_xticks([*FALSE_BOXES.values()], ["1/4", "1/2", "1", "2"])
    axes.set_xlabel("false boxes an image")
    axes.set_ylabel("recall at IoU 0.3, %")
    axes.grid(alpha=0.3)
