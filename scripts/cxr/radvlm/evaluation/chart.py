"""Figures of RadVLM's scores: labels, ablations (Table 6), and scores with other patients' images."""

import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cxr.plotting.plots import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILION, YELLOW, save_png
from cxr.radvlm.evaluation.columns import TABLES, read_scores

COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, BLACK, YELLOW, GREY)
SCALE = dict.fromkeys(
    ("rouge_l", "radgraph_f1", "green", "findings_f1", "f1_macro", "anatomical", "abnormality", "phrase", "detection",
     "absent", "ils_grounding"), 1.0
) | {"standard": 10.0, "grounded": 10.0}  # fmt: skip
"""{column that is drawn: factor to the range 0–100}. A judge's scores range from 0 to 10."""
LINE_COLOURS = (BLUE, ORANGE, GREEN, VERMILION, SKY, PURPLE, BLACK, GREY)  # colours with enough contrast for lines
MARKERS = ("o", "s")  # line markers, because there are more columns than colours


def run(*, comparison: str, labels: str, ablation: str, looks: str, dpi: int) -> None:
    """Draw three figures: F1 of each label, ablations, and scores with exchanged images. ``dpi``: dots per inch."""
    table = read_scores(comparison, TABLES)
    for draw, path in ((draw_labels, labels), (draw_ablations, ablation), (draw_exchanged, looks)):
        figure = Figure(figsize=(10, 4.5), layout="constrained")
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        if problem := draw(table, axes):
            axes.text(0.5, 0.5, problem, ha="center", va="center", transform=axes.transAxes, color=GREY)
            axes.set_axis_off()
        save_png(figure, path, dpi)


def draw_labels(table: pl.DataFrame, axes: Axes) -> str:
    """Draw the F1 of each label (Figure 4), and macro F1 as a dashed line. Return why nothing is drawn, or ""."""
    scores = table.filter(pl.col("table") == "figure4", pl.col("by") == "ours")
    names = [name for name in scores["column"].unique(maintain_order=True) if not name.startswith("f1_")]
    models = scores.select("model", "source").unique(maintain_order=True).rows()
    if not names:
        return "no classification answers"
    width = 0.84 / len(models)
    for index, (model, source) in enumerate(models):
        row_by_column = {row["column"]: row for row in scores.filter(model=model, source=source).to_dicts()}
        places = [number + (index - (len(models) - 1) / 2) * width for number in range(len(names))]
        rows, colour = [row_by_column.get(name, {}) for name in names], COLOURS[index % len(COLOURS)]
        axes.bar(places, [row.get("value") or 0.0 for row in rows], width, color=colour, label=f"{model}, {source}")
        for place, row in zip(places, rows, strict=True):
            if row.get("low") is not None and row.get("high") is not None:
                axes.plot([place, place], [row["low"], row["high"]], color="black", linewidth=0.8)
        macro = row_by_column.get("f1_macro", {}).get("value")
        if macro is not None:
            axes.axhline(macro, color=colour, linestyle="--", linewidth=0.9)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_ylabel("F1 (%); dashed: macro, 14 labels")
    axes.legend(fontsize=7, frameon=False)
    return ""


def draw_ablations(table: pl.DataFrame, axes: Axes) -> str:
    """Draw a line per column of the paper's Table 6: solid for our runs, dashed for the paper. Always return ""."""
    printed, ours = (table.filter(pl.col("table") == "table6", pl.col("by") == by) for by in ("paper", "ours"))
    runs = ours["model"].unique(maintain_order=True).to_list()
    columns = dict.fromkeys([*printed["column"], *ours["column"]])
    looks = [{"color": colour, "marker": marker, "markersize": 4} for marker in MARKERS for colour in LINE_COLOURS]
    styles = dict(zip((name for name in columns if name in SCALE), looks, strict=False))
    for column in (name for name in SCALE if name in set(printed["column"])):
        paper_rows = printed.filter(column=column).drop_nulls("value")
        is_all = pl.col("model") == "all"
        single_task, all_tasks = paper_rows.filter(~is_all)["value"], paper_rows.filter(is_all)["value"]
        if len(single_task) and len(all_tasks):
            ends = [SCALE[column] * single_task[0], SCALE[column] * all_tasks[0]]
            axes.plot([0, 1], ends, "--", label=f"{column} (paper)", **styles[column])
    for column in (name for name in SCALE if name in set(ours["column"])):
        value_by_run = dict(ours.filter(column=column).select("model", "value").iter_rows())
        points = [(2 + at, value_by_run.get(run)) for at, run in enumerate(runs)]
        points = [(at, SCALE[column] * value) for at, value in points if value is not None]
        if points:
            axes.plot(*zip(*points, strict=True), "-", label=f"{column} (ours)", **styles[column])
    axes.set_xticks(range(2 + len(runs)), ["paper: one task", "paper: all tasks", *runs], rotation=20, ha="right")
    axes.set_ylabel("%, and a judge's score times 10")
    axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return ""


def draw_exchanged(table: pl.DataFrame, axes: Axes) -> str:
    """Draw the first run's scores with the right, another patient's or no image. Return why nothing is drawn, or ""."""
    tables = ["table3", "figure4", "table4", "table5", "ours"]
    ours = table.filter(pl.col("by") == "ours", pl.col("table").is_in(tables))
    first = ours["model"][0] if len(ours) else ""
    rows = [row for row in ours.filter(model=first).to_dicts() if row["column"] in SCALE]
    if not rows:
        return "no scored answers"
    blind = {(row["source"], row["column"]): row["value"] for row in table.filter(by="blind").to_dicts()
             if row["model"].startswith(f"{first}:")}  # fmt: skip
    bars = {
        ("right image", BLUE): [row["value"] for row in rows],
        ("another patient's image", ORANGE): [row["exchanged"] for row in rows],
        ("no image (blind)", GREY): [blind.get((row["source"], row["column"])) for row in rows],
    }
    for index, ((label, colour), values) in enumerate(bars.items()):
        places = [number + (index - 1) * 0.27 for number in range(len(rows))]
        heights = [SCALE[row["column"]] * (value or 0.0) for row, value in zip(rows, values, strict=True)]
        axes.bar(places, heights, 0.25, color=colour, label=label)
    axes.set_xticks(range(len(rows)), [f"{row['column']}\n{row['source']}" for row in rows], fontsize=7)
    axes.set_ylabel("%, and a judge's score times 10")
    axes.legend(fontsize=7, frameon=False, title="answers with")
    return ""
