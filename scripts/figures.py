"""Figures: one overlay panel for each of some studies, and charts of the whole dataset."""

from ils.core import run
from ils.figures import stage

options, _ = run.begin(snakemake, stage.Options)
if snakemake.rule == "figures_panels":
    stage.run_panels(**snakemake.input, **snakemake.output, options=options)
else:
    name = snakemake.wildcards.thresholds
    stage.run_charts(**snakemake.input, **snakemake.output, name=name, options=options)
