"""Boxes: lesion boxes with confidences on the image."""

from ils.boxes.stage import Options, run_shard
from ils.core import run

options, attrs = run.begin(snakemake, Options)
run_shard(frames=snakemake.input.frames, **snakemake.output, options=options, attrs=attrs, threads=snakemake.threads)
