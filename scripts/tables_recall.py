"""Tables: recall for every threshold set."""

from ils.core import run
from ils.tables.stage import RecallOptions, run_recall

options, _ = run.begin(snakemake, RecallOptions)
run_recall(**snakemake.input, **snakemake.output, options=options)
