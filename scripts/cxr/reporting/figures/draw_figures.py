"""The figures stage: draw panels with all results of an image, and charts of instruction-answer pairs by lesion."""

import textwrap
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cxr.base.edited_images import is_unedited, read_edited_image
from cxr.base.exclusions import MAP_STAGES
from cxr.base.hdf5 import Shard
from cxr.base.jobs import progress
from cxr.base.paths import group_by_folder
from cxr.base.seeds import stable_hash
from cxr.base.tables import read_lines, read_table
from cxr.base.vocabulary import LESIONS, list_failed_conditions
from cxr.plotting.panels import (
    DROPPED_COLOUR,
    KEPT_COLOUR,
    LESION_COLOURS,
    NEGATIVE,
    ORGANS,
    POSITIVE,
    SHADE,
    draw_anomaly_map,
    draw_frame,
    draw_masks,
    draw_outline,
    draw_zones,
)
from cxr.plotting.plots import BLUE, GREY, draw_legend, save_jpeg, save_png
from cxr.reporting.settings import FiguresSettings

MIN_LABEL_DISTANCE = 22
"""Minimum distance between the numbers of two boxes, in pixels of the frame."""


def run_panels(
    *,
    findings: list[str],
    lines: list[str],
    boxes: list[str],
    masks: list[str],
    maps: list[str],
    panels: str,
    options: FiguresSettings,
    quality: int,
    seed: int,
) -> None:
    """Draw panels of ``options.studies`` images into the folder ``panels``. ``lines`` (the dataset) has one file per
    split; all other lists have one file per shard, in the same order."""
    tables = [read_table(path) for path in findings]
    selected_images = choose_images(tables, options.studies, seed)
    image_ids = {image_id for _, image_id in selected_images}
    pairs_by_image: dict[str, list[dict]] = {}
    for row in (row for path in lines for row in read_lines(path)):
        if row["image_id"] in image_ids:
            pairs_by_image.setdefault(row["image_id"], []).append(row)
    map_paths = group_by_folder(maps)
    Path(panels).mkdir(parents=True, exist_ok=True)
    for shard, image_id in progress(selected_images, len(selected_images), "panels"):
        paths = [map_paths[stage][shard] for stage in MAP_STAGES]
        pairs = pairs_by_image.get(image_id, [])
        content = _read_panel(image_id, tables[shard], boxes[shard], masks[shard], paths)
        save_jpeg(draw_panel(**content, pairs=pairs), f"{panels}/{image_id}.jpg", options.dpi, quality)


def _read_panel(image_id: str, findings: pl.DataFrame, boxes: str, masks: str, maps: list[str]) -> dict:
    rows = findings.filter(pl.col("image_id") == image_id).to_dicts()
    mask_ids = sorted({row["mask_id"] for row in rows} - {None})
    with ExitStack() as stack:
        frames, organs, anomaly, anatomy = (stack.enter_context(Shard(path)) for path in maps)
        mask_shard = stack.enter_context(Shard(masks, key="mask_id"))
        return {
            "title": f"study {rows[0]['study_id']}, image {image_id}, split {rows[0]['split']}",
            "image": frames.get("image", image_id),
            "edited": None if is_unedited(anomaly, image_id) else read_edited_image(anomaly, frames, image_id),
            "anomaly": anomaly.get("anomaly", image_id),
            "organs": organs.masks(image_id),
            "zones": anatomy.masks(image_id),
            "boxes": read_table(boxes).filter((pl.col("image_id") == image_id) & pl.col("is_used")).to_dicts(),
            "findings": rows,
            "masks": {mask_id: mask_shard.get("mask", mask_id) for mask_id in mask_ids},
        }


def draw_panel(
    *,
    title: str,
    image: np.ndarray,
    edited: np.ndarray | None,
    anomaly: np.ndarray,
    organs: dict[str, np.ndarray],
    zones: dict[str, np.ndarray],
    boxes: list[dict],
    findings: list[dict],
    masks: dict[str, np.ndarray],
    pairs: list[dict],
) -> Figure:
    """Draw the panel of one image. Images are uint8 and masks bool, all (512, 512).
    ``edited`` is the image without lesions, or None if the image was not edited."""
    figure = Figure(figsize=(16, 9), layout="constrained")
    grid = figure.subplots(2, 4)
    figure.suptitle(title, fontsize=12)
    draw_frame(grid[0, 0], image, "image")
    was = "not edited: no finding asks for a mask" if edited is None else "edited image, without lesions"
    draw_frame(grid[0, 1], image if edited is None else edited, was)
    heatmap = draw_anomaly_map(grid[0, 2], anomaly, "anomaly map, grey levels")
    figure.colorbar(heatmap, ax=grid[0, 2], shrink=0.7)
    draw_frame(grid[0, 3], image, "organs on the image")
    draw_masks(grid[0, 3], organs, {name: ORGANS.get(name, GREY) for name in organs})
    draw_frame(
        grid[1, 0], image if edited is None else edited, f"zones on the {'' if edited is None else 'edited '}image"
    )
    draw_zones(grid[1, 0], zones, fill=0.25)
    draw_frame(grid[1, 1], image, "boxes: productive, or failed")
    box_lines = _draw_boxes(grid[1, 1], boxes, [row["box_verdicts"] for row in findings if row["box_verdicts"]])
    draw_frame(grid[1, 2], image, "lesion masks")
    masked = [row for row in findings if row["mask_id"] in masks]
    for row in masked:
        draw_outline(grid[1, 2], masks[row["mask_id"]], LESION_COLOURS[row["target"]], fill=0.3)
    draw_legend(grid[1, 2], {row["target"]: LESION_COLOURS[row["target"]] for row in masked})
    _draw_texts(grid[1, 3], findings, box_lines, pairs)
    return figure


def _draw_boxes(axes: Axes, boxes: list[dict], judged: list[list[int]]) -> list[str]:
    """Draw up to eight numbered boxes, first those that meet all conditions. Return a line of text on each.

    ``judged`` has, for each finding, a verdict on each box: 0 if it meets all, else bits of the failed conditions.
    """
    best = [min((verdicts[i] for verdicts in judged), key=int.bit_count, default=None) for i in range(len(boxes))]
    box_indices = sorted(range(len(boxes)), key=lambda i: (best[i] != 0, -boxes[i]["confidence"]))[:8]
    lines, taken = [], []
    for number, i in enumerate(box_indices, 1):
        box, verdict = boxes[i], best[i]
        colour = KEPT_COLOUR if verdict == 0 else DROPPED_COLOUR
        width, height = box["x2"] - box["x1"], box["y2"] - box["y1"]
        axes.add_patch(Rectangle((box["x1"], box["y1"]), width, height, fill=False, edgecolor=colour, linewidth=1.5))
        failed = "no finding" if verdict is None else ", ".join(list_failed_conditions(verdict)) or "productive"
        lines.append(f"{number} {box['class_name']} {box['confidence']:.2f}: {failed}")
        x, y = box["x1"] + 3, box["y1"] + 3
        while any(max(abs(x - label_x), abs(y - label_y)) < MIN_LABEL_DISTANCE for label_x, label_y in taken):
            x += MIN_LABEL_DISTANCE
        taken.append((x, y))
        axes.text(x, y, str(number), color=colour, fontsize=6, va="top", bbox=SHADE)
    draw_legend(axes, {"productive for a finding": KEPT_COLOUR, "failed": DROPPED_COLOUR})
    return lines


def _draw_texts(axes: Axes, findings: list[dict], boxes: list[str], pairs: list[dict]) -> None:
    lines = ["FINDINGS"]
    for finding in findings:
        place = ", ".join(finding["reported"]) or "no location"
        finding_text = f"{finding['target'] or finding['entity']} ({finding['certainty']}) in {place}"
        outcome = finding["reason"] or "grounded: " + ", ".join(finding["grounded"] or finding["locations"])
        lines += textwrap.wrap(f"- {finding_text}: {outcome}", 62, subsequent_indent="  ")
    lines += ["", "BOXES", *(line for box in boxes for line in textwrap.wrap(box, 62, subsequent_indent="  "))]
    lines += ["", "PAIRS"]
    for pair in pairs:
        lines += textwrap.wrap(f"- {pair['instruction']} > {pair['answer']}", 62, subsequent_indent="  ")
    axes.set_axis_off()
    limit = 38
    if len(lines) > limit:
        lines = [*lines[: limit - 1], f"... and {len(lines) - limit + 1} lines more"]
    axes.text(0, 1, "\n".join(lines), va="top", ha="left", fontsize=7.5, family="monospace", transform=axes.transAxes)


def run_charts(*, splits_table: str, distribution: str, shares: str, thresholds: str, dpi: int) -> None:
    """Draw the charts ``distribution`` and ``shares`` of the pairs of one threshold set, from ``splits_table``."""
    splits = read_table(splits_table).filter(pl.col("thresholds") == thresholds)
    save_png(draw_distribution(splits), distribution, dpi)
    save_png(draw_shares(splits), shares, dpi)


def choose_images(findings: list[pl.DataFrame], number: int, seed: int) -> list[tuple[int, str]]:
    """Choose ``number`` images, if possible with masks of all lesion types. Return (index of shard, image_id) of each.

    Each choice takes an image with a mask of the lesion type that has the fewest masks so far, if there is one. The
    choice depends only on the seed and the ids, not on the number of shards.
    """
    images: dict[str, tuple[int, set[str]]] = {}
    for shard, table in enumerate(findings):
        for row in table.iter_rows(named=True):
            _, targets = images.setdefault(row["image_id"], (shard, set()))
            if row["mask_id"] is not None:
                targets.add(row["target"])
    order = sorted(images, key=lambda image_id: stable_hash(seed, "figures", image_id))
    selected_ids: list[str] = []
    lesion_counts: Counter[str] = Counter()
    while len(selected_ids) < min(number, len(order)):
        rarest = sorted(LESIONS, key=lambda lesion: (lesion_counts[lesion], LESIONS.index(lesion)))
        remaining_ids = [image_id for image_id in order if image_id not in selected_ids]
        match = next((i for lesion in rarest for i in remaining_ids if lesion in images[i][1]), remaining_ids[0])
        selected_ids.append(match)
        lesion_counts.update(images[match][1])
    return [(images[image_id][0], image_id) for image_id in sorted(selected_ids)]


def draw_distribution(splits: pl.DataFrame) -> Figure:
    """Draw the numbers of positive and negative pairs per lesion type, as in the paper's Fig. 4.

    ``splits`` has the rows of :data:`cxr.reporting.tables.paper.PAIRS_BY_SPLIT` for one threshold set. All splits and
    types of instruction are summed.
    """
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for offset, polarity, colour in ((-0.2, "positive", POSITIVE), (0.2, "negative", NEGATIVE)):
        places, pairs = [index + offset for index in range(len(LESIONS))], _pairs_per_lesion(splits, polarity)
        bars = axes.bar(places, pairs, 0.4, color=colour, label=polarity)
        axes.bar_label(bars, fontsize=8)
    axes.set_xticks(range(len(LESIONS)), LESIONS, rotation=20)
    axes.set_ylabel("instruction-answer pairs")
    axes.set_title("Pairs per lesion type")
    axes.legend()
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_shares(splits: pl.DataFrame) -> Figure:
    """Draw the percentage of each lesion type among the positive pairs and among the negative pairs, beside the
    paper's percentages. ``splits`` is as in :func:`draw_distribution`."""
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    for axes, polarity in zip(figure.subplots(1, 2, sharey=True), ("positive", "negative"), strict=True):
        for offset, ending, colour, label in ((-0.2, "", BLUE, "this run"), (0.2, "_paper", GREY, "the paper")):
            pairs = _pairs_per_lesion(splits, f"{polarity}{ending}")
            widths = [100 * number / max(sum(pairs), 1) for number in pairs]
            places = [index + offset for index in range(len(LESIONS))]
            bars = axes.barh(places, widths, 0.38, color=colour, label=label)
            axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
        axes.set_title(f"{polarity} pairs")
        axes.set_xlabel("% of the pairs")
        axes.margins(x=0.15)
        axes.spines[["top", "right"]].set_visible(False)
    figure.axes[0].set_yticks(range(len(LESIONS)), LESIONS)
    figure.axes[0].invert_yaxis()
    # the legend is below the panels, where it covers no bar
    figure.legend(*figure.axes[1].get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return figure


def _pairs_per_lesion(splits: pl.DataFrame, ending: str) -> list[int]:
    sums = dict(splits.group_by("lesion").agg(pl.sum_horizontal(f"^.*_{ending}$").sum().alias("pairs")).iter_rows())
    return [sums.get(lesion, 0) for lesion in LESIONS]
