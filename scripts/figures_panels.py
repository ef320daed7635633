"""Figures: one overlay panel for each of some studies."""

from ils.core import run
from ils.figures.stage import Options, run_panels

options, _ = run.begin(snakemake, Options)
run_panels(**snakemake.input, **snakemake.output, options=options)
