"""Bar charts of the queries' language by domain, for train and test, next to the label baselines."""

from dataclasses import dataclass

import polars as pl
from matplotlib.figure import Figure

from cxr.base.tables import read_table
from cxr.plotting.plots import BLUE, GREEN, GREY, ORANGE, save_png

MEASURES = {
    "entity_density": "clinical concepts a word",
    "morphology": "queries with a word of\nappearance (%)",
    "spatial": "words of place a query",
}
SPLITS = ("train", "test")
COLOURS = (BLUE, ORANGE, GREEN, GREY)


@dataclass(frozen=True)
class ChartOptions:
    """Resolution of the figure, dots per inch."""

    dpi: int


def run(*, language: str, chart: str, options: ChartOptions) -> None:
    """Draw the bars of the table ``language`` to ``chart``."""
    save_png(draw_language(read_table(language)), chart, options.dpi)


def draw_language(table: pl.DataFrame) -> Figure:
    """Return the figure: a row for each split, a panel for each measure, a group of bars for each domain."""
    domains = [name for name in table["domain"].unique(maintain_order=True) if name != "total"]
    sets = table["set"].unique(maintain_order=True).to_list()
    figure = Figure(figsize=(10, 5.4), layout="constrained")
    panels = figure.subplots(len(SPLITS), len(MEASURES), squeeze=False, sharex=True, sharey="col")
    width = 0.8 / max(1, len(sets))
    for row, split in zip(panels, SPLITS, strict=True):
        part = table.filter(split=split)
        for axes, (measure, label) in zip(row, MEASURES.items(), strict=True):
            for at, name in enumerate(sets):
                value_by_domain = dict(part.filter(set=name).select("domain", measure).iter_rows())
                places = [number + (at - (len(sets) - 1) / 2) * width for number in range(len(domains))]
                axes.bar(
                    places, [value_by_domain.get(domain, 0) for domain in domains], width,
                    color=COLOURS[at % len(COLOURS)], label=name,
                )  # fmt: skip
            axes.set_xticks(range(len(domains)), domains)
            axes.set_title(f"{split}: {label}", fontsize=9)
            axes.spines[["top", "right"]].set_visible(False)
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(sets), frameon=False)
    return figure
