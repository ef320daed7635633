"""Draw one image: its maps, and its boxes and masks under one threshold set."""

import io
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cxr.base.vocabulary import HEART, LUNGS, SIDES, zones_of
from cxr.plotting.palette import DROPPED, KEPT, LEVELS, ORGANS
from cxr.plotting.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, YELLOW, draw_legend

OUTLINED_ORGANS = (*LUNGS, HEART)
"""Organs that are outlined."""
MASK_COLOURS = (YELLOW, SKY, VERMILION, GREEN, PURPLE, ORANGE, BLUE)
"""Colours of the findings with a mask, used in turn."""
SHADE = {"facecolor": "black", "alpha": 0.55, "edgecolor": "none", "pad": 1}


def encode_png(figure: Figure, dpi: int) -> bytes:
    """Return a figure as the bytes of a PNG, without metadata that differs between runs."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format="png", metadata={"Software": None})
    return buffer.getvalue()


def draw_maps(arrays: Mapping, *, unedited: bool = False) -> dict[str, Figure]:
    """Draw image and organs, edited image and zones, and anomaly map, as far as they exist; return {title: figure}.

    ``unedited``: whether the edited image is the image itself.
    """
    figure_by_title = {}
    for name in ("image", "edited", "anomaly"):
        if name not in arrays:
            continue
        figure = Figure(figsize=(4.2, 4.5), layout="constrained")
        axes = figure.subplots()
        if name == "anomaly":
            title = "anomaly map"
            heatmap = axes.imshow(arrays[name], cmap="magma", vmin=0, vmax=max(64, int(arrays[name].max())))
            figure.colorbar(heatmap, ax=axes, label="grey levels", location="bottom", shrink=0.8)
            axes.set_title(title, fontsize=10)
            axes.set_axis_off()
        elif name == "edited":
            title = ("image (not edited)" if unedited else "edited image") + " and zones" * ("anatomy" in arrays)
            _draw_image(axes, arrays[name], title)
            _draw_zones(axes, arrays.get("anatomy", {}))
        else:
            title = "image and organs" if "organs" in arrays else "image"
            _draw_image(axes, arrays[name], title)
            _draw_masks(
                axes, {name: mask for name, mask in arrays.get("organs", {}).items() if name in OUTLINED_ORGANS}, ORGANS
            )
        figure_by_title[title] = figure
    return figure_by_title


def _draw_zones(axes: Axes, zones: Mapping[str, np.ndarray]) -> None:
    for side in SIDES:
        for zone, colour in zip(zones_of(side), LEVELS, strict=True):
            if zone in zones:
                _draw_outline(axes, zones[zone], colour)
    if zones:
        draw_legend(axes, dict(zip(("apical", "upper", "mid", "base"), LEVELS, strict=True)))


def draw_outcome(image: np.ndarray, boxes: Sequence[tuple], masks: Mapping[str, np.ndarray]) -> Figure:
    """Draw ``boxes`` (x1, y1, x2, y2, number, whether it is productive) and ``masks`` {legend: bool (H, W)}."""
    figure = Figure(figsize=(8.8, 4.7), layout="constrained")
    box_axes, mask_axes = figure.subplots(1, 2)
    _draw_image(box_axes, image, "boxes")
    for x1, y1, x2, y2, number, productive in boxes:
        colour, line = (KEPT, "-") if productive else (DROPPED, "--")
        box_axes.add_patch(
            Rectangle((x1, y1), x2 - x1, y2 - y1, fill=False, edgecolor=colour, linestyle=line, linewidth=1.4)
        )
        box_axes.text(x1 + 3, y1 + 3, str(number), color=colour, fontsize=7, va="top", bbox=SHADE)
    if boxes:
        draw_legend(box_axes, {"productive for a finding": KEPT, "failed (dashed)": DROPPED})
    _draw_image(mask_axes, image, "masks" if masks else "no mask")
    _draw_masks(
        mask_axes,
        masks,
        {name: MASK_COLOURS[number % len(MASK_COLOURS)] for number, name in enumerate(masks)},
        fill=0.25,
    )
    return figure


def _draw_image(axes: Axes, image: np.ndarray, title: str) -> None:
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()
    for place, side, align in ((0.01, "R", "left"), (0.99, "L", "right")):
        axes.text(place, 0.99, side, transform=axes.transAxes, ha=align, va="top", color="white", bbox=SHADE)


def _draw_masks(axes: Axes, masks: Mapping[str, np.ndarray], colours: Mapping[str, str], fill: float = 0.0) -> None:
    for name, mask in masks.items():
        _draw_outline(axes, mask, colours[name], fill)
    draw_legend(axes, {name: colours[name] for name in masks})


def _draw_outline(axes: Axes, mask: np.ndarray, colour: str, fill: float = 0.0) -> None:
    if mask.any() and not mask.all():
        axes.contour(mask, levels=[0.5], colors=[colour], linewidths=1.4)
        if fill:
            axes.contourf(mask, levels=[0.5, 1.5], colors=[colour], alpha=fill)
