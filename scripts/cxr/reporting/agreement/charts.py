"""Draw the agreement with human annotations: scores with intervals, and curves over thresholds."""

from collections.abc import Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxr.base.tables import read_table
from cxr.base.vocabulary import LESIONS
from cxr.plotting.panels import LESION_COLOURS
from cxr.plotting.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, save_png
from cxr.reporting.agreement.compare import BOX_IOUS
from cxr.reporting.agreement.references import ANY

ORDER = (*LESIONS, ANY)
COLOURS = LESION_COLOURS | {ANY: BLACK}
MARKS = dict(zip(ORDER, "osv^D*Px", strict=True))
MAP_TITLES = {"dice": "Dice", "iou": "IoU", "covered": "share of the region marked", "inside": "share of marks inside"}
BAR_TITLES = {"found": "images with a mask", "dice": "Dice, 0 without a mask", "dice_of_found": "Dice of found",
              "iou_of_found": "IoU of found"}  # fmt: skip


def run_charts(*, scores: str, bars: str, curves: str, dpi: int) -> None:
    """Draw two charts of the table ``scores``: bars for the masks, and curves over thresholds for maps and boxes."""
    table = read_table(scores)
    numbers = ["at", "value", "low", "high"]
    table = table.with_columns(pl.col(numbers).cast(pl.Float64, strict=False))
    save_png(draw_bars(table), bars, dpi)
    save_png(draw_curves(table, BOX_IOUS[0]), curves, dpi)


def draw_bars(table: pl.DataFrame) -> Figure:
    """Draw a row of bar charts per reference (file of human annotations): scores of each threshold set's masks, and the
    pointing game (how often the maximum of the anomaly map is in the annotated region)."""
    references = table["reference"].unique(maintain_order=True).to_list()
    columns = [*BAR_TITLES, "pointing"]
    figure = Figure(figsize=(3.1 * len(columns), 1 + 3 * len(references)), layout="constrained")
    grid = figure.subplots(len(references), len(columns), squeeze=False)
    for row, name in zip(grid, references, strict=True):
        reference_rows = table.filter(pl.col("reference") == name)
        for axes, measure in zip(row, columns, strict=True):
            if measure == "pointing":
                rows = reference_rows.filter(pl.col("output") == "anomaly map")
                rows = rows.filter(pl.col("measure").is_in(["pointing", "chance"]))
                _draw_bars(axes, rows, "measure", ("pointing", "chance"))
                axes.set_title("pointing of the map; chance", fontsize=9)
            else:
                rows = reference_rows.filter(
                    pl.col("output").str.starts_with("masks ") & (pl.col("measure") == measure)
                )
                _draw_bars(axes, rows, "output", rows["output"].unique(maintain_order=True).to_list())
                axes.set_title(BAR_TITLES[measure], fontsize=9)
        row[0].set_ylabel(name, fontweight="bold")
    return figure


def _draw_bars(axes: Axes, rows: pl.DataFrame, by: str, names: Sequence[str]) -> None:
    lesions = [lesion for lesion in ORDER if lesion in set(rows["lesion"])]
    width = 0.8 / max(1, len(names))
    for number, name in enumerate(names):
        row_by_lesion = {row["lesion"]: row for row in rows.filter(pl.col(by) == name).iter_rows(named=True)}
        bars = [(place, row_by_lesion[lesion]) for place, lesion in enumerate(lesions) if lesion in row_by_lesion]
        bars = [(place, row) for place, row in bars if row["value"] is not None]
        at = [place + (number - (len(names) - 1) / 2) * width for place, _ in bars]
        values = [row["value"] for _, row in bars]
        # half-widths of the intervals below and above the value; 0 if there is no interval
        ends = [
            [0.0 if row[end] is None else max(0.0, abs(row["value"] - row[end])) for _, row in bars]
            for end in ("low", "high")
        ]
        axes.bar(at, values, width * 0.9, color=(BLUE, ORANGE, GREEN, PURPLE)[number % 4], hatch=("", "//")[number % 2],
                 yerr=ends if bars else None, ecolor=GREY, capsize=2, label=name, edgecolor="white")  # fmt: skip
    axes.set_ylim(0, 1)
    axes.set_xticks(range(len(lesions)), lesions, rotation=60, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    if len(names) > 1 and lesions:
        axes.legend(fontsize=7, frameon=False)
    if not lesions:
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center", color=GREY)


def draw_curves(table: pl.DataFrame, iou: float) -> Figure:
    """Draw charts per reference (file of human annotations): scores of the anomaly map over its threshold tau_ano, and
    the recall of annotated boxes at ``iou`` and the number of false boxes over the minimum confidence of boxes."""
    references = table["reference"].unique(maintain_order=True).to_list()
    boxes = {f"recall_iou{iou:g}": f"recall of boxes, IoU {iou:g}", f"false_iou{iou:g}": "false boxes per image"}
    columns = [*(("anomaly map", *item) for item in MAP_TITLES.items()), *(("boxes", *item) for item in boxes.items())]
    figure = Figure(figsize=(3 * len(columns), 1.2 + 2.8 * len(references)), layout="constrained")
    grid = figure.subplots(len(references), len(columns), squeeze=False)
    lines: dict[str, object] = {}
    for row, name in zip(grid, references, strict=True):
        for axes, (output, measure, title) in zip(row, columns, strict=True):
            condition = (pl.col("reference") == name) & (pl.col("output") == output) & (pl.col("measure") == measure)
            panel_rows = table.filter(condition & pl.col("at").is_not_null() & pl.col("value").is_not_null())
            lines |= _draw_lines(axes, panel_rows)
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("tau_ano" if output == "anomaly map" else "confidence", fontsize=8)
            if not measure.startswith("false"):
                axes.set_ylim(0, 1)
        row[0].set_ylabel(name, fontweight="bold")
    if lines:
        figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=8, frameon=False, fontsize=8)
    return figure


def _draw_lines(axes: Axes, rows: pl.DataFrame) -> dict[str, object]:
    line_by_lesion = {}
    for lesion in [lesion for lesion in ORDER if lesion in set(rows["lesion"])]:
        lesion_rows = rows.filter(pl.col("lesion") == lesion).sort("at")
        if lesion_rows["low"].null_count() == 0:
            ends = (lesion_rows["low"], lesion_rows["high"])
            axes.fill_between(lesion_rows["at"], *ends, color=COLOURS[lesion], alpha=0.12, linewidth=0)
        (line_by_lesion[lesion],) = axes.plot(
            lesion_rows["at"], lesion_rows["value"], color=COLOURS[lesion], marker=MARKS[lesion], markersize=4
        )
    axes.set_xscale("log")
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    return line_by_lesion
