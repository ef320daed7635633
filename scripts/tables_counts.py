"""Tables: pairs per split, funnel, conservation, counts."""

from ils.core import run
from ils.tables.stage import CountsOptions, run_counts

options, _ = run.begin(snakemake, CountsOptions)
run_counts(**snakemake.input, **snakemake.output, options=options)
