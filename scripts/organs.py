"""Organs: lungs and heart on the image; pictures that are no whole chest stop here; the split of a published table."""

from ils.core import run

PARTS = {"organs_shard": "organs.stage.run_shard", "organs_chexmask": "organs.published.split"}
compute = run.compute_of(snakemake)
run.part(snakemake, PARTS[snakemake.rule], compute=compute)
