"""Draw the scores of runs as bars with intervals, and the paper's values as diamonds."""

from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxr.ils import templates
from cxr.ils.evaluation.summary import GROUPS, OVERALL, TOTAL
from cxr.metrics.masks import PAIR_METRICS
from cxr.plotting.plots import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, VERMILION, YELLOW, GREY)
HATCHES = ("", "//", "..", "xx")  # one hatch per cycle of the colours
PAPER_LABEL = "paper (ROSALIA, or the model of that name)"
PLACES = (TOTAL, *(group for group in GROUPS if group != TOTAL))
Cell = Mapping[str, float | None]


def draw_mask_scores(scores: Mapping[str, pl.DataFrame]) -> Figure:
    """Return a figure of the mask scores per lesion type; ``scores``: {run: table of scores}."""
    figure = Figure(figsize=(max(10, 2 + 2.2 * len(scores)), 3 * len(PAIR_METRICS)), layout="constrained")
    rows = {run: {row["lesion"]: row for row in table.iter_rows(named=True)} for run, table in scores.items()}
    panels = figure.subplots(len(PAIR_METRICS), 1, sharex=True)
    for axes, metric in zip(panels, PAIR_METRICS.values(), strict=True):
        cells = {run: [of_run[place] for place in PLACES] for run, of_run in rows.items()}
        _draw_bars(axes, cells, metric.column, metric.limits)
        axes.set_title(f"{metric.title}, {metric.polarity}s", loc="left")
        axes.set_xticks(range(len(PLACES)), PLACES)
    _add_legend(figure)
    return figure


def draw_text_scores(tables: Mapping[str, pl.DataFrame]) -> Figure:
    """Return a figure of each run's answer accuracy by instruction type, for the rules ``authors`` and ``strict``."""
    rules = {"authors": "text accuracy, the authors' rule", "strict": "text accuracy, strict"}
    kinds = (OVERALL, *templates.TYPES)
    answering = {run: table for run, table in tables.items() if len(table)}
    figure = Figure(figsize=(max(8, 2 + 1.6 * len(tables)), 6), layout="constrained")
    for axes, (rule, title) in zip(figure.subplots(len(rules), 1, sharex=True), rules.items(), strict=True):
        cells = {}
        for run, table in answering.items():
            total_rows = table.filter((pl.col("rule") == rule) & (pl.col("group") == TOTAL))
            row_by_type = {row["type"]: row for row in total_rows.iter_rows(named=True)}
            cells[run] = [row_by_type.get(kind, {}) for kind in kinds]
        _draw_bars(axes, cells, "accuracy")
        axes.set_title(title if answering else f"{title}: no run gave answers", loc="left")
        axes.set_xticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds])
    _add_legend(figure)
    return figure


def _draw_bars(
    axes: Axes, cells: Mapping[str, Sequence[Cell]], measure: str, limits: tuple[float, float] = (0, 100)
) -> None:
    width = 0.8 / max(1, len(cells))
    for number, (run, row) in enumerate(cells.items()):
        colour, hatch = COLOURS[number % len(COLOURS)], HATCHES[number // len(COLOURS) % len(HATCHES)]
        shift = width * (number - (len(cells) - 1) / 2)
        label: str | None = run
        for place, cell in enumerate(row):
            value, low, high, paper = (cell.get(f"{measure}{end}") for end in ("", "_low", "_high", "_paper"))
            x = place + shift
            if value is not None:
                whisker = None if low is None or high is None else [[max(0, value - low)], [max(0, high - value)]]
                axes.bar(x, value, width, color=colour, hatch=hatch, edgecolor="white", yerr=whisker,
                         error_kw={"linewidth": 1, "capsize": 2}, label=label)  # fmt: skip
                label = None
            if paper is not None:
                axes.plot(x, paper, "D", color="black", markeredgecolor="white", markersize=6, label=PAPER_LABEL)
    axes.set_ylim(*limits)
    axes.set_ylabel("%")
    axes.spines[["top", "right"]].set_visible(False)


def _add_legend(figure: Figure) -> None:
    handles = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    labels = sorted(handles, key=lambda label: label == PAPER_LABEL)  # the runs first
    if handles:
        figure.legend([handles[label] for label in labels], labels, loc="outside lower center", ncols=4)
