"""Masks: Algorithm 1 on one shard, at one threshold set."""

from ils.core import run
from ils.masks.stage import Options, run_shard

options, attrs = run.begin(snakemake, Options)
run_shard(**snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
