"""Boxes: lesion boxes with confidences on the image."""

from ils.boxes.stage import Options, run_shard
from ils.core import run

options, attrs = run.begin(snakemake, Options)
compute = run.compute_of(snakemake)
run_shard(
    **snakemake.input, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads, compute=compute
)
