"""Figures: one overlay panel for each of some studies, and charts of the whole dataset."""

from ils.core import run

PARTS = {
    "figures_panels": "figures.stage.run_panels",
    "figures_charts": "figures.stage.run_charts",
    "figures_recall": "figures.stage.run_recall",
}
run.part(snakemake, PARTS[snakemake.rule], name=snakemake.wildcards.get("thresholds"))
