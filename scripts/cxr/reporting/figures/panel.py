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
LABEL_PX = 22
"""Least distance of two boxes' numbers, in pixels of the frame."""


@dataclass(frozen=True)
class Story:
    """The content of one study's panel. Images uint8 and masks bool, all (512, 512) in the frame."""

    title: str
    image: np.ndarray
    edited: np.ndarray
    unedited: bool
    """Whether the image itself stands as the edited image."""
    anomaly: np.ndarray
    organs: dict[str, np.ndarray]
    zones: dict[str, np.ndarray]
    boxes: list[dict]
    findings: list[dict]
    masks: dict[str, np.ndarray]
    pairs: list[dict]


def draw(story: Story) -> Figure:
    """Draw the panel; the caller saves it."""
    figure = Figure(figsize=(16, 9), layout="constrained")
    grid = figure.subplots(2, 4)
    figure.suptitle(story.title, fontsize=12)
    _picture(grid[0, 0], story.image, "image")
    edited = "not edited: no finding asks for a mask" if story.unedited else "edited image, without lesions"
    _picture(grid[0, 1], story.edited, edited)
    _map(grid[0, 2], story.anomaly)
    _organs(grid[0, 3], story)
    _zones(grid[1, 0], story)
    boxes = _boxes(grid[1, 1], story)
    _masks(grid[1, 2], story)
    _text(grid[1, 3], story, boxes)
    return figure


def _picture(axes: Axes, image: np.ndarray, title: str) -> None:
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()


def _map(axes: Axes, anomaly: np.ndarray) -> None:
    heatmap = axes.imshow(anomaly, cmap="magma", vmin=0, vmax=max(64, int(anomaly.max())))
    axes.set_title("anomaly map, grey levels", fontsize=10)
    axes.set_axis_off()
    axes.figure.colorbar(heatmap, ax=axes, shrink=0.7)


def _outline(axes: Axes, mask: np.ndarray, colour: str, *, fill: float = 0.0) -> None:
    if not mask.any():
        return
    axes.contour(mask, levels=[0.5], colors=[colour], linewidths=1.4)
    if fill:
        axes.contourf(mask, levels=[0.5, 1.5], colors=[colour], alpha=fill)


def _organs(axes: Axes, story: Story) -> None:
    _picture(axes, story.image, "organs on the image")
    for name, mask in story.organs.items():
        _outline(axes, mask, palette.ORGANS.get(name, GREY))
    draw_legend(axes, {name: palette.ORGANS.get(name, GREY) for name in story.organs})


def _zones(axes: Axes, story: Story) -> None:
    _picture(axes, story.edited, f"zones on the {'' if story.unedited else 'edited '}image")
    for side in SIDES:
        for zone, colour in zip(zones_of(side), palette.LEVELS, strict=True):
            _outline(axes, story.zones[zone], colour, fill=0.25)
    draw_legend(axes, dict(zip(("apical", "upper", "mid", "base"), palette.LEVELS, strict=True)))


def failed_conditions(verdict: int) -> list[str]:
    """Return the names of the conditions that a box failed, from its bits (none: the box is productive)."""
    return [name for bit, name in enumerate(BOX_CONDITIONS) if verdict >> bit & 1]


def _boxes(axes: Axes, story: Story) -> list[str]:
    """Draw the most confident boxes with their numbers; return a line on each, for the column of texts."""
    _picture(axes, story.image, "boxes: productive, or failed")
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
        while any(abs(x - label_x) < LABEL_PX and abs(y - label_y) < LABEL_PX for label_x, label_y in taken):
            x += LABEL_PX  # to the right of the number that is already there
        taken.append((x, y))
        axes.text(x, y, str(number), color=colour, fontsize=6, va="top", bbox=SHADE)
    draw_legend(axes, {"productive for a finding": palette.KEPT, "failed": palette.DROPPED})
    return lines


def _masks(axes: Axes, story: Story) -> None:
    _picture(axes, story.image, "lesion masks")
    colour_by_lesion = {}
    for finding in story.findings:
        if finding["mask_id"] in story.masks:
            colour = palette.LESION_COLOURS[finding["target"]]
            _outline(axes, story.masks[finding["mask_id"]], colour, fill=0.3)
            colour_by_lesion[finding["target"]] = colour
    draw_legend(axes, colour_by_lesion)


def _text(axes: Axes, story: Story, boxes: list[str]) -> None:
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
