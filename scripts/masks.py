"""Masks: Algorithm 1 on one shard at one threshold set, at every set in one pass, and the index of all masks."""

from ils.core import run
from ils.masks import index, stage, sweep

if snakemake.rule == "masks_index":
    run.start(snakemake.log[0])
    index.run_index(**snakemake.input, **snakemake.output)
else:
    part = {"masks_shard": stage, "masks_sweep": sweep}[snakemake.rule]
    options, attrs = run.begin(snakemake, part.Options)
    part.run_shard(**snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
