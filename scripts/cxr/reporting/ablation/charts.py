"""Draw the effect of thresholds: curves of recall and yield per lesion type, and a map of recall over two thresholds.
Yield is the number of findings with a grounded mask, one that confirms a reported location.

The setting ``thresholds.grid`` lists values for some thresholds and names a base set. A threshold with at least two
values is varied. While one or two thresholds vary, each other one has its *reference* value, which is its value in the
base set or, if the grid lists other values for it, the nearest of these.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from cxr.base.tables import read_table
from cxr.base.vocabulary import LUNG_LESIONS
from cxr.ils.masks.thresholds import EDEMA
from cxr.plotting.plots import BLUE, GREY, ORANGE, save_png
from cxr.reporting.ablation.points import AVERAGE, COLUMNS, PARTS, TAUS, threshold_column

ROWS = (*(lesion for lesion in LUNG_LESIONS if lesion != EDEMA), EDEMA, AVERAGE)
"""Lesion types and the average, in the order of the panels. Edema is the last type, as it has its own thresholds."""
MEASURES = {"recall": "recall, %", "yield": "yield, findings"}
RECALL_STYLE = {"color": BLUE, "marker": "o", "markersize": 3.5}
YIELD_STYLE = {"color": ORANGE, "marker": "s", "markersize": 3.5}
STATED_STYLE = {"color": GREY, "linestyle": "--", "linewidth": 1}
BASE_STYLE = {"color": GREY, "linestyle": ":", "linewidth": 1}
MAX_LABELLED_CELLS = 100
"""A map of recall prints the value in each cell if it has at most this number of cells."""
MAX_TICKS = 7
"""Maximum number of labelled values on the axis of a varied threshold."""
NOTHING_VARIED_TEXT = "There is nothing to draw, because no threshold has two or more values in thresholds.grid."
ONE_VARIED_TEXT = "There is no map, because only {} has two or more values in thresholds.grid."


class Axis(NamedTuple):
    """A threshold with several ``values``, and its ``column`` in :data:`POINTS`. ``base`` is its value in the set that
    thresholds.grid.base names. ``reference``, the value nearest to ``base``, is used while other thresholds vary."""

    column: str
    values: list[float]
    reference: float
    base: float

    @property
    def name(self) -> str:
        """The name of the threshold in a figure, such as ``tau_conf`` or ``tau_conf of edema``."""
        part, _, tau = self.column.rpartition("_")
        return f"tau_{tau} of {part}" if part else f"tau_{tau}"

    def affects(self, lesion: str) -> bool:
        """Return whether the threshold affects ``lesion``, which is a lesion type or ``average``."""
        return lesion == AVERAGE or (lesion == EDEMA) == self.column.startswith(f"{EDEMA}_")


def run_charts(*, table: str, curves: str, recall_map: str, axes: list[dict], base: dict, dpi: int) -> None:
    """Draw the figures ``curves`` and ``recall_map`` from ``table`` (:data:`cxr.reporting.ablation.points.POINTS`).

    ``axes`` has {"part": ``general`` or ``edema``, "tau": name, "values": list} for each threshold of the grid.
    ``base`` is the threshold set that thresholds.grid.base names, {part: {tau: value}}.
    """
    points = read_table(table).with_columns(
        pl.col(*MEASURES, "recall_low", "recall_high").cast(pl.Float64, strict=False)
    )
    varied, reference = find_varied(axes, base)
    save_png(draw_curves(points, varied, reference), curves, dpi)
    save_png(draw_map(points, varied, reference), recall_map, dpi)


def find_varied(axes: Sequence[Mapping], base: Mapping) -> tuple[list[Axis], dict[str, float]]:
    """Return (thresholds with several values in the grid ``axes``, {column: reference value of each threshold}).
    The reference value is the value in the set ``base``, or the nearest one if the grid lists other values."""
    reference = {threshold_column(part, tau): base[part][tau] for part in PARTS for tau in TAUS}
    varied = []
    for grid_axis in axes:
        name, values = threshold_column(grid_axis["part"], grid_axis["tau"]), sorted(set(grid_axis["values"]))
        base_value = reference[name]
        # the rounding makes 0.1 and 0.3 equally near to 0.2; then the lower value is taken
        reference[name] = min(values, key=lambda value: (round(abs(value - base_value), 12), value))
        if len(values) > 1:
            varied.append(Axis(name, values, reference[name], base_value))
    return varied, reference


def points_along(points: pl.DataFrame, names: Sequence[str], reference: Mapping[str, float]) -> pl.DataFrame:
    """Return the distinct rows in which all thresholds except ``names`` have reference values, sorted by ``names``."""
    fixed = [pl.col(name) == reference[name] for name in COLUMNS if name not in names]
    return points.filter(fixed).unique([*names, "lesion"], keep="first", maintain_order=True).sort(*names)


def draw_curves(points: pl.DataFrame, axes: Sequence[Axis], reference: Mapping[str, float]) -> Figure:
    """Draw recall, with its confidence interval, and the number of masks over each threshold of ``axes``."""
    if not axes:
        return draw_note(NOTHING_VARIED_TEXT)
    lesions = _affected_lesions(axes)
    figure = Figure(figsize=(1.2 + 5.2 * len(axes), 1 + 1.45 * len(lesions)), layout="constrained")
    panels = figure.subplots(len(lesions), 2 * len(axes), squeeze=False, sharex="col")
    for number, axis in enumerate(axes):
        axis_points = points_along(points, [axis.column], reference)
        for row, lesion in enumerate(lesions):
            for side, measure in enumerate(MEASURES):
                panel = panels[row, 2 * number + side]
                if axis.affects(lesion):
                    _draw_curve(panel, axis_points.filter(pl.col("lesion") == lesion), axis, measure)
                else:
                    panel.set_visible(False)
        ticks = axis.values[:: -(-len(axis.values) // MAX_TICKS)]
        for side, title in enumerate(MEASURES.values()):
            visible_panels = [panel for panel in panels[:, 2 * number + side] if panel.get_visible()]
            visible_panels[0].set_title(title, fontsize=10)
            visible_panels[-1].set_xlabel(axis.name)
            visible_panels[-1].set_xticks(ticks, [f"{value:g}" for value in ticks], rotation=45)
    for row, lesion in enumerate(lesions):
        first_panel = next(panel for panel in panels[row] if panel.get_visible())
        first_panel.set_ylabel(lesion, fontsize=10, fontweight="bold")
    handles = {
        "recall and its interval": (Patch(color=BLUE, alpha=0.2, linewidth=0), Line2D([], [], **RECALL_STYLE)),
        "yield: findings with a grounded mask": Line2D([], [], **YIELD_STYLE),
        "findings that state the lesion": Line2D([], [], **STATED_STYLE),
        "value of the base set": Line2D([], [], **BASE_STYLE),
    }
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle("Recall and yield against each threshold, all others " + _describe_fixed(axes), fontsize=11)
    return figure


def _affected_lesions(axes: Sequence[Axis]) -> list[str]:
    return [lesion for lesion in ROWS if any(axis.affects(lesion) for axis in axes)]


def _draw_curve(panel: Axes, rows: pl.DataFrame, axis: Axis, measure: str) -> None:
    if measure == "recall":
        rows = rows.drop_nulls("recall")
        x = rows[axis.column].to_list()
        panel.fill_between(x, rows["recall_low"], rows["recall_high"], color=BLUE, alpha=0.2, linewidth=0)
        panel.plot(x, rows["recall"], **RECALL_STYLE)
        panel.set_ylim(0, 100)
    else:
        x = rows[axis.column].to_list()
        panel.plot(x, rows["findings"], **STATED_STYLE)
        panel.plot(x, rows["yield"], **YIELD_STYLE)
        panel.set_ylim(0, max(1, rows["findings"].max() or 0) * 1.08)
        panel.yaxis.get_major_locator().set_params(integer=True)
    panel.axvline(axis.base, **BASE_STYLE)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def draw_map(points: pl.DataFrame, axes: Sequence[Axis], reference: Mapping[str, float]) -> Figure:
    """Draw recall over the first two thresholds of ``axes``, with one panel per lesion type that they affect."""
    if not axes:
        return draw_note(NOTHING_VARIED_TEXT)
    if len(axes) < 2:
        return draw_note(ONE_VARIED_TEXT.format(axes[0].name))
    down, across = axes[:2]
    lesions = _affected_lesions(axes[:2])
    rows = 1 if len(lesions) < 4 else 2
    columns = -(-len(lesions) // rows)
    wide, high = max(2.4, 0.42 * len(across.values) + 0.8), max(1.8, 0.3 * len(down.values) + 0.9)
    figure = Figure(figsize=(wide * columns + 1.2, high * rows + 0.9), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    map_points = points_along(points, [down.column, across.column], reference)
    for panel, lesion in zip(panels, lesions, strict=False):
        heatmap = _draw_cells(panel, map_points.filter(pl.col("lesion") == lesion), down, across)
        panel.set_title(lesion, fontsize=10)
    for panel in panels[len(lesions) :]:
        panel.set_visible(False)
    figure.supxlabel(across.name, fontsize=10)
    figure.supylabel(down.name, fontsize=10)
    figure.colorbar(heatmap, ax=panels.tolist(), shrink=0.8, label="recall, %")
    figure.suptitle("Recall over two thresholds, all others " + _describe_fixed(axes[2:]), fontsize=11)
    return figure


def _draw_cells(panel: Axes, rows: pl.DataFrame, down: Axis, across: Axis):
    recall_by_point = {(row[down.column], row[across.column]): row["recall"] for row in rows.iter_rows(named=True)}
    grid = [[recall_by_point.get((y, x)) for x in across.values] for y in down.values]
    cells = [[float("nan") if value is None else value for value in line] for line in grid]
    heatmap = panel.imshow(cells, cmap="cividis", vmin=0, vmax=100, aspect="auto", origin="lower")
    if len(down.values) * len(across.values) <= MAX_LABELLED_CELLS:
        for y, line in enumerate(grid):
            for x, value in enumerate(line):
                text = "–" if value is None else f"{value:.0f}"
                colour = "black" if value is None or value > 55 else "white"
                panel.text(x, y, text, ha="center", va="center", color=colour, fontsize=8)
    panel.set_xticks(range(len(across.values)), [f"{value:g}" for value in across.values], rotation=45)
    panel.set_yticks(range(len(down.values)), [f"{value:g}" for value in down.values])
    panel.tick_params(labelsize=8)
    return heatmap


def _describe_fixed(axes: Sequence[Axis]) -> str:
    """Describe the values of the fixed thresholds, such as "as in the base set, but tau_conf at 0.2"."""
    shifted_axes = [axis for axis in axes if axis.reference != axis.base]
    if not shifted_axes:
        return "as in the base set"
    return "as in the base set, but " + ", ".join(f"{axis.name} at {axis.reference:g}" for axis in shifted_axes)


def draw_note(text: str) -> Figure:
    """Return a figure that shows only one line of text."""
    figure = Figure(figsize=(11, 0.6))
    figure.text(0.5, 0.5, text, ha="center", va="center", fontsize=10)
    return figure
