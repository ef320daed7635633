"""Draw charts of the whole dataset: pairs per lesion (Fig. 4), the funnel, recall by threshold set (Table 8)."""

import textwrap
from collections.abc import Mapping, Sequence

import polars as pl
from matplotlib.figure import Figure

from cxr.base.vocabulary import LESIONS
from cxr.plotting import palette
from cxr.plotting.plots import BLUE, GREY, VERMILION


def draw_distribution(splits: pl.DataFrame) -> Figure:
    """Draw positive and negative pairs per lesion type. After Fig. 4.

    ``splits``: the tables stage's pairs per split of one threshold set; all splits and types of instruction together.
    """
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for offset, polarity, colour in ((-0.2, "positive", palette.POSITIVE), (0.2, "negative", palette.NEGATIVE)):
        places = [index + offset for index in range(len(LESIONS))]
        bars = axes.bar(places, _pairs_per_lesion(splits, polarity), 0.4, color=colour, label=polarity)
        axes.bar_label(bars, fontsize=8)
    axes.set_xticks(range(len(LESIONS)), LESIONS, rotation=20)
    axes.set_ylabel("instruction-answer pairs")
    axes.set_title("Pairs per lesion type")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_shares(splits: pl.DataFrame) -> Figure:
    """Draw the share of each lesion type among positive and among negative pairs, beside the paper's.

    ``splits``: the tables stage's pairs per split of one threshold set; all splits and types of instruction together.
    """
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    for axes, polarity in zip(figure.subplots(1, 2, sharey=True), ("positive", "negative"), strict=True):
        for offset, ending, colour, label in ((-0.2, "", BLUE, "this run"), (0.2, "_paper", GREY, "the paper")):
            pairs = _pairs_per_lesion(splits, f"{polarity}{ending}")
            widths = [100 * number / max(sum(pairs), 1) for number in pairs]
            places = [index + offset for index in range(len(LESIONS))]
            axes.bar_label(
                axes.barh(places, widths, 0.38, color=colour, label=label), fmt="%.1f", fontsize=8, padding=2
            )
        axes.set_title(f"{polarity} pairs")
        axes.set_xlabel("% of the pairs")
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_yticks(range(len(LESIONS)), LESIONS)
    figure.axes[0].invert_yaxis()
    # below the panels, where it covers no bar
    figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _pairs_per_lesion(splits: pl.DataFrame, ending: str) -> list[int]:
    """Return the number of pairs per lesion type, in their order, from all columns with that ending."""
    columns = [name for name in splits.columns if name.endswith(f"_{ending}")]
    sums = dict(splits.group_by("lesion").agg(pl.sum_horizontal(columns).sum().alias("pairs")).iter_rows())
    return [sums.get(lesion, 0) for lesion in LESIONS]


def draw_funnel(steps: Sequence[tuple[str, int, Mapping[str, int]]]) -> Figure:
    """Draw the images left after each stage; ``steps`` of (stage, images left, {reason: images lost})."""
    figure = Figure(figsize=(11, 0.4 * len(steps) + 1.4), layout="constrained")
    axes = figure.subplots()
    for row, (_stage, num_remaining, lost) in enumerate(steps):
        axes.barh(row, num_remaining, color=BLUE, height=0.6)
        axes.barh(row, sum(lost.values()), left=num_remaining, color=VERMILION, height=0.6)
        reasons = textwrap.fill(
            ", ".join(f"{reason} {count}" for reason, count in sorted(lost.items())), 58, subsequent_indent="  "
        )
        axes.text(
            num_remaining + sum(lost.values()),
            row,
            f"  {num_remaining}" + (f"  lost: {reasons}" if reasons else ""),
            va="center",
            fontsize=8,
        )
    most = max((num_remaining + sum(lost.values()) for _, num_remaining, lost in steps), default=1)
    axes.set_xlim(0, most * 1.9)
    axes.set_yticks(range(len(steps)), [stage for stage, _, _ in steps])
    axes.invert_yaxis()
    axes.set_xlabel("images")
    axes.set_title("From input images to images with pairs: blue continues, red stops")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_recall(table: pl.DataFrame) -> Figure:
    """Draw recall (Table 8) as a heat map, one row per threshold set; ``table``: thresholds, lesion, recall (%)."""
    names = table["thresholds"].unique(maintain_order=True).to_list()
    lesions = table["lesion"].unique(maintain_order=True).to_list()
    figure = Figure(figsize=(10, 0.4 * len(names) + 2.2), layout="constrained")
    axes = figure.subplots()
    grid = [
        [
            _recall_value(table.filter((pl.col("thresholds") == name) & (pl.col("lesion") == lesion))["recall"])
            for lesion in lesions
        ]
        for name in names
    ]
    heatmap = axes.imshow(grid, cmap="cividis", vmin=0, vmax=100, aspect="auto")
    for row, values in enumerate(grid):
        for column, value in enumerate(values):
            text = "–" if value != value else f"{value:.0f}"
            axes.text(
                column, row, text, ha="center", va="center", color="white" if not value > 55 else "black", fontsize=8
            )
    axes.set_xticks(range(len(lesions)), lesions, rotation=20)
    axes.set_yticks(range(len(names)), names)
    axes.set_title("Recall by threshold set, %")
    figure.colorbar(heatmap, ax=axes, shrink=0.8)
    if all(value != value for values in grid for value in values):
        message = "No accepted study has a finding: there is nothing to recall"
        box = {"facecolor": "white", "edgecolor": "none"}
        axes.text(0.5, 0.5, message, ha="center", va="center", transform=axes.transAxes, bbox=box)
    return figure


def _recall_value(values: pl.Series) -> float:
    # without any finding, the column is read as empty strings
    return float(values[0]) if len(values) and values[0] not in (None, "") else float("nan")
