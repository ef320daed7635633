"""Draw the curves of a training: losses by update (optimiser step), and validation scores by epoch."""

from itertools import pairwise

import numpy as np
import polars as pl
from matplotlib.figure import Figure

from cxr.base.tables import read_table
from cxr.plotting.plots import BLACK, BLUE, GREEN, GREY, ORANGE, VERMILION, save_png

COLOURS = {"loss": BLACK, "text": BLUE, "bce": VERMILION, "dice": GREEN}
SCORES = {"giou": ("gIoU", BLUE, "o"), "ciou": ("cIoU", ORANGE, "s"), "n_acc": ("N-Acc", GREEN, "^")}
DPI = 110
MAX_POINTS = 200
"""Maximum number of points of a curve. If there are more updates, groups of them are averaged."""


def run_curves(*, updates: str, epochs: str, figure: str) -> None:
    """Draw the tables ``updates`` and ``epochs`` of a training into the file ``figure``."""
    save_png(draw_curves(read_table(updates), read_table(epochs)), figure, DPI)


def draw_curves(updates: pl.DataFrame, epochs: pl.DataFrame) -> Figure:
    """Return a figure of the losses by update, except skipped ones, and the scores by epoch, with the best marked."""
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    loss_axes, score_axes = figure.subplots(1, 2)
    applied_updates = updates.filter(~pl.col("skipped"))
    at = average_groups(applied_updates["update"].to_numpy())
    for name, colour in COLOURS.items():
        losses = average_groups(applied_updates[name].to_numpy())
        loss_axes.plot(at, losses, color=colour, label=name, lw=2 if name == "loss" else 1.2)
    loss_axes.set(xlabel="update", ylabel="weighted loss", title="Training")
    loss_axes.legend()
    for name, (label, colour, mark) in SCORES.items():
        score_axes.plot(epochs["epoch"], epochs[name], color=colour, marker=mark, ms=4, label=label)
    if epochs["value"].is_not_nan().any():
        best = epochs["epoch"][epochs["value"].fill_nan(-1).arg_max()]
        score_axes.axvline(best, color=GREY, ls="--", lw=1)
        score_axes.text(best, 1.02, " kept", color=GREY, transform=score_axes.get_xaxis_transform(), ha="center")
    score_axes.set(xlabel="epoch", ylim=(-0.02, 1.02), title="Validation")
    score_axes.legend()
    for axes in (loss_axes, score_axes):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def average_groups(values: np.ndarray) -> np.ndarray:
    """Return the means of at most ``MAX_POINTS`` consecutive groups of the values (N,)."""
    edges = np.linspace(0, len(values), min(MAX_POINTS, len(values)) + 1).astype(int)
    return np.array([values[first:last].mean() for first, last in pairwise(edges)])
