"""Organs: lungs and heart on the image; pictures that are no whole chest stop here; the split of a published table."""

from ils.core import run

PARTS = {"organs_shard": "organs.stage.run_shard", "organs_chexmask": "organs.published.split"}
compute = snakemake.config["compute"]  # no param: how a net is run re-runs nothing
run.part(snakemake, PARTS[snakemake.rule], compute=compute)
