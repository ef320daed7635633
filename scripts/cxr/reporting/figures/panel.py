"""Draw one study: image, edited image, anomaly map, organs, zones, boxes, masks and pairs (after Fig. 2 and 8)."""

import textwrap
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cxr.base.vocabulary import list_failed_conditions
from cxr.plotting import palette
from cxr.plotting.panels import SHADE, draw_anomaly_map, draw_frame, draw_masks, draw_outline, draw_zones
from cxr.plotting.plots import GREY, draw_legend

MIN_LABEL_DISTANCE = 22
"""Minimum distance between the numbers of two boxes, in pixels of the frame."""


@dataclass(frozen=True)
class PanelContent:
    """The content of one panel. Images are uint8 and masks bool, all (512, 512) in the frame."""

    title: str
    image: np.ndarray
    edited: np.ndarray
    unedited: bool
    """Whether the edited image is the image itself."""
    anomaly: np.ndarray
    organs: dict[str, np.ndarray]
    zones: dict[str, np.ndarray]
    boxes: list[dict]
    findings: list[dict]
    masks: dict[str, np.ndarray]
    pairs: list[dict]


def draw_panel(story: PanelContent) -> Figure:
    """Draw the panel of one image."""
    figure = Figure(figsize=(16, 9), layout="constrained")
    grid = figure.subplots(2, 4)
    figure.suptitle(story.title, fontsize=12)
    draw_frame(grid[0, 0], story.image, "image")
    edited = "not edited: no finding asks for a mask" if story.unedited else "edited image, without lesions"
    draw_frame(grid[0, 1], story.edited, edited)
    heatmap = draw_anomaly_map(grid[0, 2], story.anomaly, "anomaly map, grey levels")
    figure.colorbar(heatmap, ax=grid[0, 2], shrink=0.7)
    draw_frame(grid[0, 3], story.image, "organs on the image")
    draw_masks(grid[0, 3], story.organs, {name: palette.ORGANS.get(name, GREY) for name in story.organs})
    draw_frame(grid[1, 0], story.edited, f"zones on the {'' if story.unedited else 'edited '}image")
    draw_zones(grid[1, 0], story.zones, fill=0.25)
    boxes = _draw_boxes(grid[1, 1], story)
    _draw_masks(grid[1, 2], story)
    _draw_text(grid[1, 3], story, boxes)
    return figure


def _draw_boxes(axes: Axes, story: PanelContent) -> list[str]:
    """Draw the most confident boxes with numbers; return a line on each for the column of texts."""
    draw_frame(axes, story.image, "boxes: productive, or failed")
    judged = [finding["box_verdicts"] for finding in story.findings if finding["box_verdicts"]]
    best = [min((verdicts[i] for verdicts in judged), key=int.bit_count, default=None) for i in range(len(story.boxes))]
    box_indices = sorted(range(len(story.boxes)), key=lambda i: (best[i] != 0, -story.boxes[i]["confidence"]))[:8]
    lines, taken = [], []
    for number, i in enumerate(box_indices, 1):
        box, verdict = story.boxes[i], best[i]
        colour = palette.KEPT if verdict == 0 else palette.DROPPED
        width, height = box["x2"] - box["x1"], box["y2"] - box["y1"]
        axes.add_patch(Rectangle((box["x1"], box["y1"]), width, height, fill=False, edgecolor=colour, linewidth=1.5))
        failed = "no finding" if verdict is None else ", ".join(list_failed_conditions(verdict)) or "productive"
        lines.append(f"{number} {box['class_name']} {box['confidence']:.2f}: {failed}")
        x, y = box["x1"] + 3, box["y1"] + 3
        while any(
            abs(x - label_x) < MIN_LABEL_DISTANCE and abs(y - label_y) < MIN_LABEL_DISTANCE
            for label_x, label_y in taken
        ):
            x += MIN_LABEL_DISTANCE  # to the right of the number that is already there
        taken.append((x, y))
        axes.text(x, y, str(number), color=colour, fontsize=6, va="top", bbox=SHADE)
    draw_legend(axes, {"productive for a finding": palette.KEPT, "failed": palette.DROPPED})
    return lines


def _draw_masks(axes: Axes, story: PanelContent) -> None:
    draw_frame(axes, story.image, "lesion masks")
    colour_by_lesion = {}
    for finding in story.findings:
        if finding["mask_id"] in story.masks:
            colour = palette.LESION_COLOURS[finding["target"]]
            draw_outline(axes, story.masks[finding["mask_id"]], colour, fill=0.3)
            colour_by_lesion[finding["target"]] = colour
    draw_legend(axes, colour_by_lesion)


def _draw_text(axes: Axes, story: PanelContent, boxes: list[str]) -> None:
    lines = ["FINDINGS"]
    for finding in story.findings:
        place = ", ".join(finding["reported"]) or "no location"
        finding_text = f"{finding['target'] or finding['entity']} ({finding['certainty']}) in {place}"
        outcome = finding["reason"] or "grounded: " + ", ".join(finding["grounded"] or finding["locations"])
        lines += textwrap.wrap(f"- {finding_text}: {outcome}", 62, subsequent_indent="  ")
    lines += ["", "BOXES", *(line for box in boxes for line in textwrap.wrap(box, 62, subsequent_indent="  "))]
    lines += ["", "PAIRS"]
    for pair in story.pairs:
        lines += textwrap.wrap(f"- {pair['instruction']} > {pair['answer']}", 62, subsequent_indent="  ")
    axes.set_axis_off()
    limit = 38
    if len(lines) > limit:
        lines = [*lines[: limit - 1], f"... and {len(lines) - limit + 1} lines more"]
    axes.text(0, 1, "\n".join(lines), va="top", ha="left", fontsize=7.5, family="monospace", transform=axes.transAxes)
