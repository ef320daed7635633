"""Draw sheets for the page and the report: a case of the gallery, an image under several threshold sets, costs."""

import textwrap
from collections.abc import Sequence

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cxr.plotting.palette import LESION_COLOURS
from cxr.plotting.plots import BLUE, ORANGE


def draw_case(title: str, masks: np.ndarray, boxes: np.ndarray, words: Sequence[str]) -> Figure:
    """Draw a case: two images, uint8 (H, W, 3), side by side, and below them the reason for each numbered box."""
    heading = [part for line in title.splitlines() for part in textwrap.wrap(line, 120)]
    lines = [part for line in words for part in textwrap.wrap(line, 118, subsequent_indent="   ")]
    above, picture, below = 0.2 * len(heading) + 0.35, 4.9, 0.19 * len(lines) + 0.2
    height = above + picture + below
    figure = Figure(figsize=(10, height))  # fixed layout: automatic layout would double the time
    figure.text(0.01, 1 - 0.05 / height, "\n".join(heading), va="top", fontsize=10)
    names = ("mask; reported location in white", "boxes: kept in blue, dropped in dashed orange")
    for x, pixels, name in zip((0.01, 0.51), (masks, boxes), names, strict=True):
        _show_image(figure.add_axes((x, below / height, 0.48, picture / height)), pixels, name)
    figure.text(0.01, (below - 0.08) / height, "\n".join(lines), va="top", fontsize=8.5, family="monospace")
    return figure


def draw_calibration(title: str, cells: Sequence[tuple[str, np.ndarray]], lesions: Sequence[str]) -> Figure:
    """Draw one image under several threshold sets: ``cells`` of (name, image), and a legend of the lesion types."""
    columns = min(max(len(cells), 2), 4)
    rows = -(-len(cells) // columns)
    width, height = 3.6 * columns, 4.0 * rows + 0.9
    figure = Figure(figsize=(width, height))
    figure.text(0.01, 1 - 0.05 / height, title, va="top", fontsize=10)
    for at, (name, picture) in enumerate(cells):
        row, column = divmod(at, columns)
        low = (height - 0.65 - 4.0 * (row + 1) + 0.35) / height
        axes = figure.add_axes((column / columns + 0.01, low, 1 / columns - 0.02, 3.5 / height))
        _show_image(axes, picture, "\n".join(textwrap.wrap(name, 52)))
    if lesions:
        handles = [Patch(color=LESION_COLOURS[lesion], label=lesion) for lesion in lesions]
        figure.legend(handles=handles, loc="lower left", ncols=6, fontsize=8)
    return figure


def _show_image(axes: Axes, picture: np.ndarray, title: str) -> None:
    axes.imshow(picture)
    axes.set_title(title, fontsize=9)
    axes.set_axis_off()


def draw_costs(table: pl.DataFrame) -> Figure:
    """Draw seconds and memory of each stage, in the order of ``table`` (of ``costs.sum_by_stage``)."""
    figure = Figure(figsize=(9, 0.34 * len(table) + 1.3), layout="constrained")
    seconds, memory = figure.subplots(1, 2, sharey=True)
    places = range(len(table))
    for axes, column, colour, label in (
        (seconds, "seconds", BLUE, "seconds, all jobs together"),
        (memory, "max_rss_mb", ORANGE, "MB, the largest job"),
    ):
        bars = axes.barh(places, table[column].fill_null(0), color=colour, height=0.65)
        axes.bar_label(bars, fmt="%.0f" if column == "max_rss_mb" else "%.1f", fontsize=8, padding=2)
        axes.set_xlabel(label)
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    seconds.set_yticks(places, table["stage"])
    seconds.invert_yaxis()
    return figure
