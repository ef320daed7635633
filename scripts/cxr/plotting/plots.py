"""Colours that colour-blind readers can distinguish (Okabe and Ito), legends, and saving of figures."""

import io
from collections.abc import Mapping
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from cxr.base.atomic import atomic_file

# Ids, names and reports may contain "$", which must not start a formula.
matplotlib.rcParams["text.parse_math"] = False

ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"
BLACK = "#000000"


def draw_legend(axes: Axes, entries: Mapping[str, str]) -> None:
    """Draw a legend of {name: colour} over an image, unless ``entries`` is empty."""
    if entries:
        handles = [Patch(color=colour, label=name) for name, colour in entries.items()]
        axes.legend(handles=handles, loc="lower left", fontsize=7, framealpha=0.7)


def save_png(figure: Figure, path: str | Path, dpi: int) -> None:
    """Save a figure as PNG, atomically, and without Matplotlib's version, so that the bytes are reproducible."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format="png", metadata={"Software": None})


def save_jpeg(figure: Figure, path: str | Path, dpi: int, quality: int) -> None:
    """Save a figure as JPEG, atomically. This suits sheets of X-rays, which would be five times larger as PNG."""
    # no chroma subsampling: thin outlines would lose their colours
    as_jpeg = {"quality": quality, "optimize": True, "subsampling": 0}
    # encode in memory, because on a full disk Pillow writes an incomplete JPEG without an error
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format="jpeg", pil_kwargs=as_jpeg)
    with atomic_file(path) as temporary:
        temporary.write_bytes(buffer.getvalue())
