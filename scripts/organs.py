"""Organs: lungs and heart on the image; pictures that are no whole chest stop here."""

from ils.core import run
from ils.organs.stage import Options, run_shard

options, attrs = run.begin(snakemake, Options)
compute = snakemake.config["compute"]  # no param: how a net is run re-runs nothing
run_shard(
    **snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads, compute=compute
)
