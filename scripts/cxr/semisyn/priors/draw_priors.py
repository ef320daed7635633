"""Plot the priors: boxes on a lung, and for each number (such as width) the prior, placed and experts' values."""

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cxr.base.tables import read_table
from cxr.plotting.plots import BLUE, GREY, ORANGE, VERMILION, save_png
from cxr.semisyn.findings.boxes import Places, draw_boxes
from cxr.semisyn.findings.catalogue import CONSTANT, RATIO, WHOLE_LUNG, Law, read_catalogue
from cxr.semisyn.findings.laws import scipy_law

NUM_SHOWN, NUM_PLACED = 40, 1000
"""Number of random boxes that are drawn on the lung, and number of those in the histograms."""
LIMITS = {"cx": (-40, 140), "cy": (-40, 140), "w": (0, 200), "h": (0, 200), RATIO: (30, 100)}
TITLES = {
    "cx": "centre x, % from the lateral edge", "cy": "centre y, % from the top", "w": "width, %", "h": "height, %",
    RATIO: "cardiothoracic ratio, %",
}  # fmt: skip
PARTS = {"cx": ("center", "center_x", 0), "cy": ("center", "center_y", 1), "w": ("size", "width", 0),
         "h": ("size", "height", 1)}  # fmt: skip
"""{number: (name of its two-dimensional law, name of its one-dimensional law, index in the two-dimensional law)}."""
ASPECT = 1.6
"""Height of the drawn lung over its width."""


def run_chart(
    *, priors: str, samples: str, fits: str, figure: str, dpi: int, findings: list[str], seed: int,
    findings_file: str = "",
) -> None:  # fmt: skip
    """Draw ``figure``: for each finding, boxes on a lung drawn at random by ``seed``, and a plot of each number."""
    catalogue = read_catalogue(findings_file, priors)
    used_samples = read_table(samples).filter(exclusion_reason="")
    counts = dict(read_table(fits).group_by("finding").agg(pl.col("n").max()).iter_rows())
    canvas = Figure(figsize=(15, 1 + 2.6 * len(findings)), layout="constrained")
    grid = canvas.subplots(len(findings), 1 + len(PARTS), squeeze=False)
    for row, name in zip(grid, findings, strict=True):
        finding, finding_samples = catalogue.findings[name], used_samples.filter(finding=name)
        origin = {"paper": "the paper's prior", "file": "your prior"}.get(finding.prior.origin, "fitted prior")
        boxes = f"\n{counts[name]} boxes" if counts.get(name) else ""
        row[0].set_ylabel(f"{finding.label}\n{origin}{boxes}", fontweight="bold", fontsize=9)
        if finding.prior.placement == "heart":
            _draw_density(row[1], RATIO, finding.prior.laws[RATIO], finding_samples, None)
            row[1].axvline(finding.prior.minimum[0], color=GREY, linestyle=":", label="least")
            row[1].legend(fontsize=7, frameon=False)
            for axes in (row[0], *row[2:]):
                _hide_axes(axes)
            continue
        # draw without a zone, in a right lung in the middle of a wide image
        bounds = np.array([0.0, 0.0, 100.0, 100 * ASPECT]), np.array([-1e3, -1e3, 1e3, 1e3]), np.full(4, np.nan)
        lungs, pictures, hearts, zones = (np.tile(box, (NUM_PLACED, 1)) for box in (*bounds, WHOLE_LUNG))
        places = Places(lungs, pictures, hearts, np.zeros(NUM_PLACED, bool), zones)
        uniforms = np.random.default_rng(seed).random((NUM_PLACED, 1, 4))
        how = {"bounds": "repo", "min_mass": 0.0, "heart_exclusion": False}
        placed_boxes = draw_boxes(finding.prior, places, uniforms, **how)
        for x1, y1, x2, y2 in placed_boxes.boxes[placed_boxes.tries > 0][:NUM_SHOWN]:
            outline = {"fill": False, "edgecolor": VERMILION, "linewidth": 0.5, "alpha": 0.6}
            for style in ({"color": VERMILION, "alpha": 0.05}, outline):
                row[0].add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, **style))
        row[0].add_patch(Rectangle((0, 0), 100, 100 * ASPECT, fill=False, edgecolor=BLUE, linewidth=2))
        row[0].set(xlim=(-35, 135), ylim=(100 * ASPECT + 70, -35), aspect="equal")
        _hide_axes(row[0])
        row[0].set_xlabel("lateral → medial", fontsize=8)
        for column, (axes, number) in enumerate(zip(row[1:], PARTS, strict=True)):
            pair, single, place = PARTS[number]
            law = finding.prior.laws.get(single) or marginal_law(finding.prior.laws[pair], place)
            _draw_density(axes, number, law, finding_samples, placed_boxes.percent[placed_boxes.tries > 0, column])
    save_png(canvas, figure, dpi)


def marginal_law(law: Law, place: int) -> Law:
    """Return the marginal law of the first (``place`` 0) or second number (1) of a two-dimensional log-normal law."""
    mu, sigma = law.parameters["mu"], law.parameters["sigma"]
    return Law("lognorm", {"s": float(np.sqrt(sigma[place][place])), "loc": 0.0, "scale": float(np.exp(mu[place]))})


def _hide_axes(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)


def _draw_density(axes: Axes, number: str, law: Law, samples: pl.DataFrame, placed_values: np.ndarray | None) -> None:
    values = samples["ctr" if number == RATIO else number].drop_nulls().to_numpy()
    x = np.linspace(*LIMITS[number], 400)
    if len(values):
        axes.hist(values, bins=20, density=True, color=GREY, alpha=0.5, label="people's boxes")
    if law.family == CONSTANT:
        axes.axvline(law.parameters["value"], color=ORANGE, linewidth=2, label="constant")
    else:
        axes.plot(x, scipy_law(law).pdf(x), color=ORANGE, linewidth=2, label=f"prior ({law.family})")
    if placed_values is not None and law.family != CONSTANT:
        axes.hist(placed_values, bins=30, density=True, histtype="step", color=BLUE, linewidth=1, label="as placed")
    axes.set_xlim(*LIMITS[number])
    axes.set_yticks([])
    axes.set_title(TITLES[number], fontsize=9)
    axes.legend(fontsize=7, frameon=False)
    axes.spines[["top", "right", "left"]].set_visible(False)
