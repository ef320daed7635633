"""Masks, index: where each mask is, and the findings and exclusions of all shards in one table each."""

from ils.core import run
from ils.masks.index import run_index

run.start(snakemake.log[0])
run_index(**snakemake.input, **snakemake.output)
