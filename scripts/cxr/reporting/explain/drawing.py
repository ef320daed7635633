"""Draw one image with its organs, zones and anomaly map, and with its boxes and masks under one threshold set."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cxr.base.vocabulary import HEART, LUNGS
from cxr.plotting.panels import (
    DROPPED_COLOUR,
    KEPT_COLOUR,
    ORGANS,
    SHADE,
    draw_anomaly_map,
    draw_frame,
    draw_masks,
    draw_zones,
)
from cxr.plotting.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW, draw_legend

OUTLINED_ORGANS = (*LUNGS, HEART)
MASK_COLOURS = (YELLOW, SKY, VERMILION, GREEN, PURPLE, ORANGE, BLUE)
"""Colours of the masks of findings, used in turn."""


def draw_maps(arrays: Mapping, *, unedited: bool = False) -> dict[str, Figure]:
    """Return {title: figure} with the image and its organs, the edited image (without lesions) and its zones, and the
    anomaly map. Arrays that ``arrays`` lacks are omitted. ``unedited``: whether the image needed no editing."""
    figure_by_title = {}
    for name in [name for name in ("image", "edited", "anomaly") if name in arrays]:
        figure = Figure(figsize=(4.2, 4.5), layout="constrained")
        axes = figure.subplots()
        if name == "anomaly":
            title = "anomaly map"
            heatmap = draw_anomaly_map(axes, arrays[name], title)
            figure.colorbar(heatmap, ax=axes, label="grey levels", location="bottom", shrink=0.8)
        elif name == "edited":
            title = ("image (not edited)" if unedited else "edited image") + " and zones" * ("anatomy" in arrays)
            _draw_frame_with_sides(axes, arrays[name], title)
            draw_zones(axes, arrays.get("anatomy", {}))
        else:
            title = "image and organs" if "organs" in arrays else "image"
            _draw_frame_with_sides(axes, arrays[name], title)
            organs = {name: mask for name, mask in arrays.get("organs", {}).items() if name in OUTLINED_ORGANS}
            draw_masks(axes, organs, ORGANS)
        figure_by_title[title] = figure
    return figure_by_title


def draw_outcome(image: np.ndarray, boxes: Sequence[tuple], masks: Mapping[str, np.ndarray]) -> Figure:
    """Draw an image with ``boxes`` (x1, y1, x2, y2, number, whether it met all conditions), and with ``masks``."""
    figure = Figure(figsize=(8.8, 4.7), layout="constrained")
    box_axes, mask_axes = figure.subplots(1, 2)
    _draw_frame_with_sides(box_axes, image, "boxes")
    for x1, y1, x2, y2, number, productive in boxes:
        colour, line = (KEPT_COLOUR, "-") if productive else (DROPPED_COLOUR, "--")
        box_axes.add_patch(
            Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linestyle=line, linewidth=1.4)
        )
        box_axes.text(x1 + 3, y1 + 3, str(number), color=colour, fontsize=7, va="top", bbox=SHADE)
    if boxes:
        draw_legend(box_axes, {"productive for a finding": KEPT_COLOUR, "failed (dashed)": DROPPED_COLOUR})
    _draw_frame_with_sides(mask_axes, image, "masks" if masks else "no mask")
    colours = {name: MASK_COLOURS[number % len(MASK_COLOURS)] for number, name in enumerate(masks)}
    draw_masks(mask_axes, masks, colours, fill=0.25)
    return figure


def _draw_frame_with_sides(axes: Axes, image: np.ndarray, title: str) -> None:
    draw_frame(axes, image, title)
    for place, side, align in ((0.01, "R", "left"), (0.99, "L", "right")):
        axes.text(place, 0.99, side, transform=axes.transAxes, ha=align, va="top", color="white", bbox=SHADE)
