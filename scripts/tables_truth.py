"""Tables: the embedded cohort beside its truth."""

from ils.core import run
from ils.tables.stage import TruthOptions, run_truth

options, _ = run.begin(snakemake, TruthOptions)
run_truth(**snakemake.input, **snakemake.output, options=options)
