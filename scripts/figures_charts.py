"""Figures: charts of the whole dataset."""

from ils.core import run
from ils.figures.stage import Options, run_charts

options, _ = run.begin(snakemake, Options)
run_charts(**snakemake.input, **snakemake.output, name=snakemake.wildcards.thresholds, options=options)
