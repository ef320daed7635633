"""Draw frames, masks, zones and anomaly maps on axes, with the same colours in all stages."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.image import AxesImage

from cxr.base.lesions import LESION_TYPES
from cxr.base.vocabulary import SIDES, zones_of
from cxr.plotting.plots import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION, draw_legend

ORGANS = {"right lung": SKY, "left lung": GREEN, "heart": VERMILION, "cardiomediastinum": PURPLE}
LEVELS = (ORANGE, SKY, GREEN, PURPLE)
"""Colours of the apical, upper, mid and base zones, the same on both sides."""
LESION_COLOURS = {lesion.name: lesion.colour for lesion in LESION_TYPES}
POSITIVE, NEGATIVE = BLUE, ORANGE
"""Colours of positive and negative pairs."""
KEPT_COLOUR, DROPPED_COLOUR = SKY, ORANGE
"""Colours of boxes that met all conditions (productive boxes), and of boxes that failed a condition."""
SHADE = {"facecolor": "black", "alpha": 0.55, "edgecolor": "none", "pad": 1}
"""Style of the background of a text on an image."""
LEAST_BRIGHTEST = 64
"""Grey level at which the colour scale of an anomaly map ends, or the maximum of the map if that is higher."""


def draw_frame(axes: Axes, image: np.ndarray, title: str) -> None:
    """Draw a grey image, uint8 (H, W)."""
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()


def draw_anomaly_map(axes: Axes, anomaly: np.ndarray, title: str) -> AxesImage:
    """Draw an anomaly map, uint8 (H, W)."""
    heatmap = axes.imshow(anomaly, cmap="magma", vmin=0, vmax=max(LEAST_BRIGHTEST, int(anomaly.max())))
    axes.set_title(title, fontsize=10)
    axes.set_axis_off()
    return heatmap


def draw_outline(axes: Axes, mask: np.ndarray, colour: str, fill: float = 0.0) -> None:
    """Draw the outline of a mask, bool (H, W); ``fill``: opacity of the shading inside."""
    if mask.any() and not mask.all():
        axes.contour(mask, levels=[0.5], colors=[colour], linewidths=1.4)
        if fill:
            axes.contourf(mask, levels=[0.5, 1.5], colors=[colour], alpha=fill)


def draw_masks(axes: Axes, masks: Mapping[str, np.ndarray], colours: Mapping[str, str], fill: float = 0.0) -> None:
    """Draw the outlines of masks, shade them with opacity ``fill``, and draw a legend of the names."""
    for name, mask in masks.items():
        draw_outline(axes, mask, colours[name], fill)
    draw_legend(axes, {name: colours[name] for name in masks})


def draw_zones(axes: Axes, zones: Mapping[str, np.ndarray], fill: float = 0.0) -> None:
    """Draw the lung zones {name: mask}, if there are any, with a legend. ``fill``: opacity of the shading inside."""
    for side in SIDES:
        for zone, colour in zip(zones_of(side), LEVELS, strict=True):
            if zone in zones:
                draw_outline(axes, zones[zone], colour, fill)
    if zones:
        draw_legend(axes, dict(zip(("apical", "upper", "mid", "base"), LEVELS, strict=True)))
