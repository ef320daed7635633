"""Draw masks and boxes over images."""

import textwrap
from collections.abc import Sequence

import cv2
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from cxr.plotting.plots import ORANGE, SKY

PREDICTED, REFERENCE = ORANGE, SKY
FILL_OPACITY = 0.3
"""Opacity of the shading inside a mask."""
LONGEST_SIDE = 1024
"""Longest side of a drawn image, px."""
SIDES = ("R", "L")
"""The patient's sides, from the image's left to its right, in the usual orientation of frontal X-rays."""


def shrink_for_drawing(image: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shrink an image and its mask, both (H, W), to a longer side of at most :data:`LONGEST_SIDE`."""
    scale = LONGEST_SIDE / max(image.shape)
    if scale >= 1:
        return image, mask
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    small = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    return cv2.resize(image, size, interpolation=cv2.INTER_AREA), small > 0


def draw_mask(
    axes: Axes, image: np.ndarray, mask: np.ndarray | None, colour: str, sides: tuple[str, str] = SIDES
) -> None:
    """Draw a grey image, its mask (outline and shading in ``colour``), and the patient's sides."""
    axes.imshow(image, cmap="gray", vmin=0, vmax=255)
    axes.set_axis_off()
    if mask is not None and mask.any():
        # pad with background, so that a mask that touches the image's edge has an outline there too
        framed = np.pad(mask, 1)
        grid = [np.arange(-1, length + 1) for length in reversed(mask.shape)]
        axes.contour(*grid, framed, levels=[0.5], colors=[colour], linewidths=1.4)
        axes.contourf(*grid, framed, levels=[0.5, 1.5], colors=[colour], alpha=FILL_OPACITY)
        axes.set(xlim=(-0.5, mask.shape[1] - 0.5), ylim=(mask.shape[0] - 0.5, -0.5))
    for place, side, align in ((0.01, sides[0], "left"), (0.99, sides[1], "right")):
        axes.text(place, 0.99, side, transform=axes.transAxes, ha=align, va="top", color="white", fontsize=12,
                  bbox={"facecolor": "black", "alpha": 0.55, "edgecolor": "none", "pad": 2})  # fmt: skip


def draw_overlay(
    image: np.ndarray,
    mask: np.ndarray | None,
    instruction: str,
    answer: str,
    sides: tuple[str, str] = SIDES,
    boxes: Sequence[Sequence[float]] = (),
) -> Figure:
    """Draw a model's mask and boxes (x1, y1, x2, y2 as fractions of the image) on an image, with the instruction and
    the answer. ``mask`` is None if no mask was requested."""
    small, small_mask = shrink_for_drawing(image, np.zeros(image.shape, bool) if mask is None else mask)
    rows, columns = small.shape
    wide = 8 * columns / max(rows, columns)
    figure = Figure(figsize=(max(wide, 5), 8 * rows / max(rows, columns) + 1.4), layout="constrained")
    axes = figure.subplots()
    draw_mask(axes, small, small_mask, PREDICTED, sides)
    for x1, y1, x2, y2 in boxes:
        corner = (x1 * columns - 0.5, y1 * rows - 0.5)
        axes.add_patch(Rectangle(corner, (x2 - x1) * columns, (y2 - y1) * rows, fill=False, ec=PREDICTED, lw=2))
    letters = int(11 * max(wide, 5))
    axes.set_title(textwrap.fill(instruction, letters), fontsize=10)
    figure.supxlabel(textwrap.fill(answer, letters), fontsize=10)
    labels = [] if mask is None else [f"mask, {mask.mean():.1%} of the image" if mask.any() else "mask: empty"]
    if mask is None or len(boxes):
        labels.append(f"{len(boxes)} box{'es' if len(boxes) > 1 else ''}" if len(boxes) else "no box")
    handles = [Patch(color=PREDICTED, alpha=0.7, label=text) for text in labels]
    axes.legend(handles=handles, loc="lower left", fontsize=8, framealpha=0.7)
    return figure
