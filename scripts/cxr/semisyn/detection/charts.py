"""Draw the mean AP of each run with its interval, and the recall over the false boxes per image."""

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
        _draw_runs(row[0], row[1], reference_rows, colours)
        images, boxes, patients = reference_rows.select("images", "boxes", "patients").row(0)
        row[0].set_title(f"{name}: {images} images, {boxes} boxes, {patients} patients", fontsize=10)
    grid[-1][1].legend(fontsize=8, loc="lower right")
    save_png(figure, curves, dpi)


def _draw_runs(intervals: Axes, recalls: Axes, table: pl.DataFrame, colours: dict[str, str]) -> None:
    """Draw the mean AP over seeds with its interval, each seed as a bar, and the recalls."""
    ap = table.filter(pl.col("metric").str.starts_with("map"), pl.col("low").is_not_null())
    metric = ap["metric"][0] if len(ap) else ""
    for place, (run, colour) in enumerate(colours.items()):
        scores = ap.filter(pl.col("run") == run, pl.col("metric") == metric)
        for value, low, high, seed in scores.select("value", "low", "high", "seed").iter_rows():
            if seed is None:
                intervals.plot([low, high], [place, place], color=colour, linewidth=2)
                intervals.plot(value, place, "o", color=colour, markersize=7)
            else:
                intervals.plot(value, place, "|", color=colour, markersize=12)
        means = dict(table.filter(pl.col("run") == run).group_by("metric").agg(pl.col("value").mean()).iter_rows())
        points = [(false, means[name]) for name, false in FALSE_BOXES.items() if name in means]
        if points:
            mark = MARKS[place % len(MARKS)]
            recalls.plot(*zip(*points, strict=True), marker=mark, color=colour, label=run, linewidth=1.2)
    intervals.set_yticks(range(len(colours)), [*colours])
    intervals.invert_yaxis()
    intervals.set_xlabel(f"{metric}, % (interval by patients; bars: seeds)")
    intervals.grid(axis="x", alpha=0.3)
    recalls.set_xscale("log", base=2)
    recalls.set_xticks([*FALSE_BOXES.values()], ["1/4", "1/2", "1", "2"])
    recalls.set_xlabel("false boxes an image")
    recalls.set_ylabel("recall at IoU 0.3, %")
    recalls.grid(alpha=0.3)
