"""Figures of RadVLM's scores: labels, ablations (Table 6), and scores with exchanged images."""

import polars as pl
from matplotlib.figure import Figure

from cxr.plotting.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW, save_png
from cxr.radvlm.evaluation.columns import TABLES, read_scores

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, BLACK, YELLOW, GREY)
PERCENT = ("rouge_l", "radgraph_f1", "green", "findings_f1", "f1_macro", "anatomical", "abnormality", "phrase",
           "detection", "absent", "ils_grounding")  # fmt: skip
SCORES = ("standard", "grounded")
"""Columns of judge scores, 0 to 10; the charts show them times 10."""
LINE_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, BLACK, GREY)
"""Line colours: one per column of the paper, none pale on white."""
MARKERS = ("o", "s")
"""Line markers, because there are more columns than colours."""


def run(*, comparison: str, labels: str, ablation: str, looks: str, dpi: int) -> None:
    """Draw the F1 of each label, the ablations, and the scores with exchanged images; ``dpi``: dots per inch."""
    table = read_scores(comparison, TABLES)
    save_png(draw_labels(table), labels, dpi)
    save_png(draw_ablations(table), ablation, dpi)
    save_png(draw_exchanged(table), looks, dpi)


def _figure(height: float = 4.5):
    figure = Figure(figsize=(10, height), layout="constrained")
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _draw_message(axes, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, color=GREY)
    axes.set_axis_off()


def draw_labels(table: pl.DataFrame) -> Figure:
    """Return bars of the F1 of each label (Figure 4), one colour per run or model, with dashed macro F1 lines."""
    figure, axes = _figure()
    scores = table.filter(pl.col("table") == "figure4", pl.col("by") == "ours")
    names = [name for name in scores["column"].unique(maintain_order=True) if not name.startswith("f1_")]
    models = scores.select("model", "source").unique(maintain_order=True).rows()
    if not names:
        _draw_message(axes, "no answers to questions for labels")
        return figure
    width = 0.84 / len(models)
    for index, (model, source) in enumerate(models):
        row_by_column = {row["column"]: row for row in scores.filter(model=model, source=source).to_dicts()}
        places = [number + (index - (len(models) - 1) / 2) * width for number in range(len(names))]
        values = [(row_by_column.get(name) or {}).get("value") or 0.0 for name in names]
        colour = COLOURS[index % len(COLOURS)]
        axes.bar(places, values, width, color=colour, label=f"{model}, {source}")
        for place, name in zip(places, names, strict=True):
            row = row_by_column.get(name)
            if row and row["low"] is not None and row["high"] is not None:
                axes.plot([place, place], [row["low"], row["high"]], color="black", linewidth=0.8)
        macro = (row_by_column.get("f1_macro") or {}).get("value")
        if macro is not None:
            axes.axhline(macro, color=colour, linestyle="--", linewidth=0.9)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_ylabel("F1 (%); dashed: macro, 14 labels")
    axes.legend(fontsize=7, frameon=False)
    return figure


def draw_ablations(table: pl.DataFrame) -> Figure:
    """Return Table 6 as lines: one per column over our runs; dashed: the paper, from single tasks to all."""
    figure, axes = _figure()
    ours = table.filter(pl.col("table") == "table6", pl.col("by") == "ours")
    runs = ours["model"].unique(maintain_order=True).to_list()
    printed = table.filter(pl.col("table") == "table6", pl.col("by") == "paper")
    present = [*printed["column"].unique(maintain_order=True), *ours["column"].unique(maintain_order=True)]
    plotted_columns = [name for name in dict.fromkeys(present) if name in (*PERCENT, *SCORES)]
    style = {
        name: {
            "color": LINE_COLOURS[index % len(LINE_COLOURS)],
            "marker": MARKERS[index // len(LINE_COLOURS)],
            "markersize": 4,
        }
        for index, name in enumerate(plotted_columns)
    }
    for column in (name for name in (*PERCENT, *SCORES) if name in set(printed["column"])):
        paper_rows = printed.filter(column=column).drop_nulls("value")
        single_task, all_tasks = (
            paper_rows.filter((pl.col("model") == "all") == is_all)["value"] for is_all in (False, True)
        )
        if len(single_task) and len(all_tasks):
            ends = [_scale(column) * single_task[0], _scale(column) * all_tasks[0]]
            axes.plot([0, 1], ends, "--", label=f"{column} (paper)", **style[column])
    for column in (name for name in (*PERCENT, *SCORES) if name in set(ours["column"])):
        value_by_run = dict(ours.filter(column=column).select("model", "value").iter_rows())
        points = [(2 + at, value_by_run.get(run)) for at, run in enumerate(runs)]
        points = [(at, _scale(column) * value) for at, value in points if value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), "-", label=f"{column} (ours)", **style[column])
    axes.set_xticks(range(2 + len(runs)), ["paper: one task", "paper: all tasks", *runs], rotation=20, ha="right")
    axes.set_ylabel("%, and a judge's score times 10")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def draw_exchanged(table: pl.DataFrame) -> Figure:
    """Return bars of the first run's scores: own images, exchanged images and blind answers."""
    figure, axes = _figure()
    tables = ["table3", "figure4", "table4", "table5", "ours"]
    ours = table.filter(pl.col("by") == "ours", pl.col("table").is_in(tables))
    first = ours["model"][0] if len(ours) else ""
    rows = [row for row in ours.filter(model=first).to_dicts() if row["column"] in (*PERCENT, *SCORES)]
    if not rows:
        _draw_message(axes, "no answers that are scored")
        return figure
    blind = {(row["source"], row["column"]): row["value"] for row in table.filter(by="blind").to_dicts()
             if row["model"].startswith(f"{first}:")}  # fmt: skip
    for index, (label, colour) in enumerate((("own picture", BLUE), ("another patient's", ORANGE), ("nothing", GREY))):
        places = [number + (index - 1) * 0.27 for number in range(len(rows))]
        axes.bar(places, [_bar_height(row, index, blind) for row in rows], 0.25, color=colour, label=label)
    axes.set_xticks(range(len(rows)), [f"{row['column']}\n{row['source']}" for row in rows], fontsize=7)
    axes.set_ylabel("%, and a judge's score times 10")
    axes.legend(fontsize=7, frameon=False, title="the answer is about")
    return figure


def _bar_height(row: dict, index: int, blind: dict) -> float:
    values = (row["value"], row["exchanged"], blind.get((row["source"], row["column"])))
    return _scale(row["column"]) * (values[index] or 0.0)


def _scale(column: str) -> float:
    return 10.0 if column in SCORES else 1.0
