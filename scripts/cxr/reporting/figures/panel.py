"""Draw one study: image, edited image, anomaly map, organs, zones, boxes, masks and pairs (after Fig. 2 and 8)."""

import textwrap
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cxr.base.vocabulary import BOX_CONDITIONS, SIDES, zones_of
from cxr.plotting import palette
from cxr.plotting.plots import GREY, draw_legend

SHADE = {"facecolor": "black", "alpha": 0.55, "edgecolor": "none", "pad": 1}
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
    _draw_image(grid[0, 0], story.image, "image")
    edited = "not edited: no finding asks for a mask" if story.unedited else "edited image, without lesions"
    _draw_image(grid[0, 1], story.edited, edited)
    _draw_map(grid[0, 2], story.anomaly)
    _draw_organs(grid[0, 3], story)
    _draw_zones(grid[1, 0], story)
    boxes = _draw_boxes(grid[1, 1], story)
    _draw_masks(grid[1, 2], story)
    _draw_text(grid[1, 3], story, boxes)
    return figure


def _draw_image(axes: Axes, image: np.ndarray, title: str) -> None:
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()


def _draw_map(axes: Axes, anomaly: np.ndarray) -> None:
    heatmap = axes.imshow(anomaly, cmap="magma", vmin=0, vmax=max(64, int(anomaly.max())))
    axes.set_title("anomaly map, grey levels", fontsize=10)
    axes.set_axis_off()
    axes.figure.colorbar(heatmap, ax=axes, shrink=0.7)


def _draw_outline(axes: Axes, mask: np.ndarray, colour: str, *, fill: float = 0.0) -> None:
    if not mask.any():
        return
    axes.contour(mask, levels=[0.5], colors=[colour], linewidths=1.4)
    if fill:
        axes.contourf(mask, levels=[0.5, 1.5], colors=[colour], alpha=fill)


def _draw_organs(axes: Axes, story: PanelContent) -> None:
    _draw_image(axes, story.image, "organs on the image")
    for name, mask in story.organs.items():
        _draw_outline(axes, mask, palette.ORGANS.get(name, GREY))
    draw_legend(axes, {name: palette.ORGANS.get(name, GREY) for name in story.organs})


def _draw_zones(axes: Axes, story: PanelContent) -> None:
    _draw_image(axes, story.edited, f"zones on the {'' if story.unedited else 'edited '}image")
    for side in SIDES:
        for zone, colour in zip(zones_of(side), palette.LEVELS, strict=True):
            _draw_outline(axes, story.zones[zone], colour, fill=0.25)
    draw_legend(axes, dict(zip(("apical", "upper", "mid", "base"), palette.LEVELS, strict=True)))


def failed_conditions(verdict: int) -> list[str]:
    """Return the names of the conditions that a box failed, from its bits (none: the box is productive)."""
    return [name for bit, name in enumerate(BOX_CONDITIONS) if verdict >> bit & 1]


def _draw_boxes(axes: Axes, story: PanelContent) -> list[str]:
    """Draw the most confident boxes with numbers; return a line on each for the column of texts."""
    _draw_image(axes, story.image, "boxes: productive, or failed")
    judged = [finding["box_verdicts"] for finding in story.findings if finding["box_verdicts"]]
    best = [min((verdicts[i] for verdicts in judged), key=int.bit_count, default=None) for i in range(len(story.boxes))]
    box_indices = sorted(range(len(story.boxes)), key=lambda i: (best[i] != 0, -story.boxes[i]["confidence"]))[:8]
    lines, taken = [], []
    for number, i in enumerate(box_indices, 1):
        box, verdict = story.boxes[i], best[i]
        colour = palette.KEPT if verdict == 0 else palette.DROPPED
        width, height = box["x2"] - box["x1"], box["y2"] - box["y1"]
        axes.add_patch(Rectangle((box["x1"], box["y1"]), width, height, fill=False, edgecolor=colour, linewidth=1.5))
        failed = "no finding" if verdict is None else ", ".join(failed_conditions(verdict)) or "productive"
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
    _draw_image(axes, story.image, "lesion masks")
    colour_by_lesion = {}
    for finding in story.findings:
        if finding["mask_id"] in story.masks:
            colour = palette.LESION_COLOURS[finding["target"]]
            _draw_outline(axes, story.masks[finding["mask_id"]], colour, fill=0.3)
            colour_by_lesion[finding["target"]] = colour
    draw_legend(axes, colour_by_lesion)


def _draw_text(axes: Axes, story: PanelContent, boxes: list[str]) -> None:
    lines = ["FINDINGS"]
    for finding in story.findings:
        place = ", ".join(finding["reported"]) or "no location"
        finding_text = f"{finding['target'] or finding['entity']} ({finding['certainty']}) in {place}"
        outcome = finding["reason"] or "grounded: " + ", ".join(finding["grounded"] or finding["named"])
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
