"""Frames: decode, window and fit every accepted image to 512 x 512; one image a study."""

from ils.core import run
from ils.frames.stage import Options, run_shard

options, attrs = run.begin(snakemake, Options)
compute = run.compute_of(snakemake)  # no param: how often a decoder may fail re-runs nothing
run_shard(
    **snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads, compute=compute
)
