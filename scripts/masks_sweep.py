"""Masks, sweep: every threshold set in one pass over a shard, for recall and yield."""

from ils.core import run
from ils.masks.sweep import Options, run_shard

options, attrs = run.begin(snakemake, Options)
run_shard(**snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
